"""Who is compared with whom: the direction of a term that compares two groups or columns, in one form for all kinds.

The ``summary`` of an answer has it under :data:`COMPARED`, by term or by the group of several terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quietmean.core.readable import phrase
from quietmean.statistics.columns import Column

COMPARED, WITHOUT_SIGN = "compared", "without_sign"
# What a term is, where its name does not tell; and in a table that heads it so.
_MEANING, _IN_TABLE = {"smd": "smd (standardised mean difference)"}, {"smd": "SMD (standardised mean difference)"}


def ratio_of(column: Column, *terms: str, outcome: str = "") -> dict[str, str]:
    """Terms that are of a column's second level against its first; none where it has not two. ``outcome``: what is counted."""
    return _of_two(column, terms, "{outcome}{name} {second} against {first}", outcome and f"{outcome}, ")


def difference_of(column: Column, *terms: str) -> dict[str, str]:
    """Terms that are of a column's second level minus its first; none where it has not two."""
    return _of_two(column, terms, "{name} {second} minus {first}")


def _of_two(column: Column, terms: Iterable[str], form: str, outcome: str = "") -> dict[str, str]:
    if len(column.categories) != 2:
        return {}
    first, second = column.categories
    return dict.fromkeys(terms, form.format(outcome=outcome, name=column.name, first=first, second=second))


def compared_in(summary: Mapping[str, Any]) -> list[str]:
    """What the summary of an answer says of that, such as "odds-ratio, risk-ratio: smoker yes, sex m against f", as phrases."""
    compared = summary.get(COMPARED)
    if not isinstance(compared, Mapping):
        return []
    texts = dict.fromkeys(str(text) for text in compared.values())
    meaning = _IN_TABLE if "table" in summary else _MEANING
    lines = [
        _line(", ".join(meaning.get(term, str(term)) for term, own in compared.items() if own == text), text) for text in texts
    ]
    names = summary.get(WITHOUT_SIGN)
    if isinstance(names, Sequence) and names:
        lines.append(phrase("SMD of {names}: a distance of all levels, without sign", names=", ".join(map(str, names))))
    return lines


def _line(terms: str, text: str) -> str:
    """Such a line as a phrase, as far as it is of a known form and no name has its words."""
    if found := _parts("only (.+) against only (.+)", text):
        return phrase("{terms}: only {second} against only {first}", terms=terms, **found)
    if found := _parts("how often (.+) is above (.+)", text):
        return phrase("{terms}: how often {second} is above {first}", terms=terms, **found)
    if found := _parts("(.+) against (.+)", text):
        return phrase("{terms}: {second} against {first}", terms=terms, **found)
    if found := _parts("(.+) minus (.+)", text):
        return phrase("{terms}: {second} minus {first}", terms=terms, **found)
    if found := _parts("()against (.+)", text):
        return phrase("{terms}: against {first}", terms=terms, first=found["first"])
    return f"{terms}: {text}"


def _parts(form: str, text: str) -> dict[str, str]:
    """The second and the first group of a text of this form; nothing of another one."""
    found = re.fullmatch(form, text)
    if found is None or any(re.search(r"\b(against|minus|is above)\b", part) for part in found.groups()):
        return {}
    return {"second": found[1], "first": found[2]}
