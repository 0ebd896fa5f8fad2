"""What the noise hides of the answers, in sentences: a ratio is not known as a count in it is too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quietmean.core.readable import chained, counted_phrase, phrase
from quietmean.statistics.estimate import SMALL_CELL
from quietmean.statistics.models import asked_by_rounds
from quietmean.statistics.tidy import Term

# Names that one line has.
_NAMED = 4
# Kinds of numbers, which may have levels only among what explains them.
_OF_NUMBERS = frozenset(
    (
        *("mean", "sum", "count", "variance", "correlation", "covariance", "pca"),
        *("linear-regression", "logistic-regression", "paired-difference", "bland-altman", "icc"),
    )
)
# Kinds of which neither levels nor narrower bounds would show more.
_WITHOUT_EITHER = frozenset(("count", "first-look"))


def and_more(names: Sequence[str]) -> str:
    """The first names in one line, and how many more there are."""
    if len(names) == 2:
        return phrase("{first} and {last}", first=names[0], last=names[1])
    listed = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    return listed if more <= 0 else phrase("{listed} and {more} more", listed=listed, more=f"{more}")


def what_is_hidden(hidden: Sequence[Term], every: int, typed: Mapping[str, str] | None = None) -> str:
    """Which of ``every`` term are ``hidden``, why, and what would show more.

    ``typed``: the question of a model by rounds that asks the same as a statistic, by its name, with all bounds.
    """
    # A ratio itself is not too small: a count in it is.
    ratios = [term for term in hidden if SMALL_CELL in term.flags]
    others = [term for term in hidden if term not in ratios]
    said = []
    if ratios:
        said.append(
            counted_phrase(
                len(ratios),
                "A count is too small for this noise, so 1 ratio is not known: {names}.",
                "A count is too small for this noise, so {count} ratios are not known: {names}.",
                names=_names(ratios),
            )
        )
    if others:
        of = {"hidden": f"{len(others)}", "all": f"{every}"}
        said.append(phrase("The noise hides {hidden} of the {all} values: {names}.", names=_names(others), **of))
    if all(term.kind in _WITHOUT_EITHER for term in hidden):
        said.append(phrase("Ask for more records or a larger epsilon (it protects less)."))
    elif any(map(_may_have_levels, hidden)):
        said.append(phrase("Ask for fewer levels, more records or a larger epsilon (it protects less)."))
    else:
        said.append(phrase("Ask with narrower bounds, more records or a larger epsilon (it protects less)."))
    whole = typed or {}
    if rounds := next((question for term in hidden if (question := whole.get(term.name) or asked_by_rounds(term.name))), ""):
        said.append(
            phrase("Or try {question}: its noise grows with the spread of the data, not with the bounds.", question=rounds)
        )
    return chained([*said, phrase("Asking again costs privacy again.")], " ")


def _may_have_levels(term: Term) -> bool:
    """May a term be of one level among others? A slope then has the level in brackets."""
    return term.kind not in _OF_NUMBERS or "[" in term.term


def _names(terms: Sequence[Term]) -> str:
    """Terms by their names, of which what all begin with is said once."""
    names = [f"{term.name} {term.label}".rstrip() for term in terms]
    same, found, _ = names[0].rpartition(") ")
    same = f"{same}) " if found and all(name.startswith(f"{same}) ") for name in names) else ""
    return same + and_more([name.removeprefix(same) for name in names])
