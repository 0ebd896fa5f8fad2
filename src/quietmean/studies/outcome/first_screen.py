"""The first screen of a result: the answer, one line on its noise, its privacy, and what must never be hidden.

It is made from a receipt alone, and from what only this machine knows: the answers without noise, and values that did not fit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quietmean.core.assumptions import OUTSIDERS
from quietmean.core.output import mapping_of
from quietmean.core.readable import (
    epsilon_shown,
    indented,
    phrase,
    plain,
)
from quietmean.ledger.account import shared_budget_text
from quietmean.planning.influence import Checked
from quietmean.privacy.guesses import guess_text
from quietmean.statistics.estimate import number_of
from quietmean.statistics.kinds.first_look import CUT, FirstLook
from quietmean.statistics.printed import TRUTH, have_truth, printed_table
from quietmean.statistics.tidy import Term
from quietmean.studies.agreement.first_look import LookBudget, only_looks
from quietmean.studies.outcome.about_intervals import about_intervals
from quietmean.studies.outcome.answer_lines import below_looks, lines_of_looks, table_lines, terms_with_a_line
from quietmean.studies.outcome.ended import Ended, always_facts, always_lines
from quietmean.studies.outcome.outsiders import only_outsiders

_INTERVALS_APART = "The numbers of the table have privacy noise. Their intervals: --details."
_FULL_WEIGHT = f'"{TRUTH}" has no noise and counts all records with full weight.'
# What stands before a line that says more of the one above.
_GOES_ON = " "


def first_screen(receipt: Mapping[str, Any], here: Sequence[str] = (), truth: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The lines of a study's first screen, without where it was written to.

    ``here``: sentences on values of this machine that did not fit. ``truth``: the statistics with the values without noise.
    """
    end = Ended(receipt, here)
    if end.failed:
        return list(_no_answer(end))
    return [
        *_table(truth or end.statistics, end),
        "",
        *(
            line
            for head, text in _below_table(end, _with_lines(end.statistics))
            for line in indented(head, text, *([] if head else [0]))
        ),
        *always_lines(always_facts(end)),
    ]


def _table(documents: Sequence[Mapping[str, Any]], end: Ended) -> Iterator[str]:
    """The lines of all answers, those of first looks apart."""
    looks = [document for document in documents if document.get("kind") == FirstLook.name]
    others = [document for document in documents if document not in looks]
    yield from lines_of_looks(looks)
    if others or not looks:
        yield from table_lines(others, phrase(end.counted))


def screen_of_answers(documents: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The lines of answers alone, with what is flagged of them; and those of what noise hides, which are marked."""
    end = Ended({"result": {"statistics": documents}})
    notes = [flag for document in documents for flag in document["flagged"] if flag["code"] != "not-identified"]
    lines = [
        *table_lines(documents, phrase(end.counted)),
        "",
        *(line for text in about_intervals(end.terms) for line in indented("", text, 0)),
        *([_FULL_WEIGHT] if have_truth(documents) and any(flag["code"] == CUT for flag in notes) else []),
        *(line for text in dict.fromkeys(str(flag["message"]) for flag in notes) for line in indented("Note", f"{text}.")),
    ]
    return lines, always_lines(fact for fact in always_facts(end) if fact.key == "HIDDEN")


def below_answers(receipt: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a first screen says below its table, each with the word that it begins with: for a notebook."""
    end = Ended(receipt)
    return [*_below_table(end, end.terms), *((fact.key, fact.text) for fact in always_facts(end))]


def _with_lines(documents: Sequence[Mapping[str, Any]]) -> list[Term]:
    """The terms whose intervals a first screen shows: not those of a table that a statistic prints itself."""
    return [term for document in documents if not _has_table(document) for term in terms_with_a_line(document)]


def _has_table(document: Mapping[str, Any]) -> bool:
    return printed_table(mapping_of(document.get("summary"))) is not None


def _below_table(end: Ended, shown_terms: Sequence[Term]) -> Iterator[tuple[str, str]]:
    looks = [document for document in end.statistics if document.get("kind") == FirstLook.name]
    about, apart = end.terms if any(term.these_records for term in end.terms) else shown_terms, {look["name"] for look in looks}
    # Nobody's answers have no interval that means anything.
    intervals = about_intervals([] if end.nobodys else [term for term in about if term.name not in apart])
    yield from (("", text) for text in (*below_looks(looks), *intervals))
    named = {term.name for term in shown_terms}
    if any(_has_table(document) and document["name"] not in named for document in end.statistics):
        yield "", _INTERVALS_APART
    if only_looks(end.statistics) and (budget := LookBudget.of_result(end.result)) is not None:
        yield "Budget", budget.left
    yield "Privacy", privacy_of(end)
    if means := privacy_means(end):
        yield _GOES_ON, means
    if times := end.result.get("over_gaussian"):
        yield "Cost", shared_budget_text(float(times))
    yield "Protocol", _protocol(end)
    yield _checked(end)


def cost_kept(end: Ended) -> str:
    """What a study without an answer cost."""
    charged = mapping_of(end.receipt.get("no_result")).get("charged")
    return phrase("Kept: {charged}.", charged=f"{charged}") if charged else phrase("Kept, as far as anything was released.")


def _no_answer(end: Ended) -> Iterator[str]:
    yield from indented("No answer", f"{end.failed[:1].upper()}{end.failed[1:]}.".replace("..", "."))
    yield from indented("Cost", cost_kept(end))
    yield from always_lines(always_facts(end))


def privacy_of(end: Ended) -> str:
    """What is guaranteed or realised, in one sentence."""
    against = phrase(str(end.certificate.get("against") or end.certificate.get("adversary", "")))
    if found := re.fullmatch(r"any (\d+) of (\d+)", against):
        against = phrase("any {some} of {all}", some=found[1], all=found[2])
    elif against == OUTSIDERS and not only_outsiders(end.certificate, end.promised):
        against = phrase("all others")
    if end.bare:
        return phrase("none")
    if end.nats:
        known = "a_priori" in end.nats
        most = epsilon_shown(float(end.nats["a_priori"] if known else number_of(end.nats["most"])))
        if known:
            return phrase("at most {most} nats a coordinate, guaranteed, against {against}", most=most, against=against)
        return phrase("at most {most} nats a coordinate, realised, against {against}", most=most, against=against)
    if math.isfinite(end.promised):
        of = {"epsilon": epsilon_shown(end.promised), "delta": end.delta, "unit": phrase(end.unit)}
        return phrase("epsilon {epsilon} (delta {delta}) per {unit}, guaranteed, against {against}", against=against, **of)
    if math.isfinite(end.spent):
        of = {"epsilon": epsilon_shown(end.spent), "delta": end.delta}
        return phrase("epsilon {epsilon} realised (delta {delta}); nothing was guaranteed beforehand", **of)
    return phrase("no bound, neither guaranteed nor realised")


def privacy_means(end: Ended) -> str:
    """What the epsilon of :func:`privacy_of` means for who knows none; "" where no epsilon is stated."""
    epsilon = end.promised if math.isfinite(end.promised) else end.spent
    if end.bare or end.nats or not math.isfinite(epsilon):
        return ""
    return guess_text(epsilon, float(end.result.get("delta", 0)), phrase(end.unit))


def _protocol(end: Ended) -> str:
    trust, over = end.certificate.get("trust"), end.result.get("over_curator")
    name = f"{end.receipt.get('protocol', '')}{f', {trust}' if trust else ''}."
    return f"{name} Noise {_beside_pooled(float(over))} pooled records." if over and end.spent <= end.asked else name


def _beside_pooled(times: float) -> str:
    percent = round(100 * (times - 1))
    if not percent:
        return "as with"
    return (
        f"{plain(times, 3)} times that with" if times >= 2 else f"{abs(percent)} % {'more' if percent > 0 else 'less'} than with"
    )


def _checked(end: Ended) -> tuple[str, str]:
    """What was checked of those who are counted; nothing is called checked that was not."""
    influence, by = mapping_of(end.certificate.get("influence")), mapping_of(end.certificate.get("checked_by"))
    how, whose = influence.get("checked"), phrase("{whose} parties", whose=end.whose)
    if end.committee:
        whose = phrase("{whose} contributors", whose=end.whose)
    if how in (Checked.EACH_RELEASE, Checked.EACH_CONTRIBUTION):
        return "Checked", phrase("{whose}, each within bounds. Not checked: if values are true.", whose=whose)
    if by.get("lies_excluded"):
        return "Checked", phrase("{whose}: a wrong total would be noticed, a false value not.", whose=whose)
    if how == Checked.RESULT:
        return "Counted", phrase("{whose}: only an impossible total would be noticed.", whose=whose)
    return "Counted", phrase("{whose}. Nobody checks what they send.", whose=whose)
