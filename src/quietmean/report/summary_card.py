"""The first screen of a page: how sure, who is left out, what did it cost, against whom, what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core import readable
from quietmean.core.bounds import APriori
from quietmean.core.readable import count_of
from quietmean.privacy import PrivacyAnalysis
from quietmean.protocols.execution import Execution
from quietmean.report import words
from quietmean.statistics.printed import capital

if TYPE_CHECKING:
    from quietmean.ledger import Account

# The most estimates that are named; of more, the first ones, or the number of good ones.
_MOST_ESTIMATES = 2
_SHORT = 16
_MOST_NAMES = 3
_LONGEST_NAME = 32
NO_ESTIMATE = "Not stated in this file"


@dataclass(frozen=True)
class SummaryCard:
    """One question, its answer in a few words, and what has to be known with it."""

    question: str
    answer: str
    note: str


def keeps_nats(nats: Mapping[str, float]) -> bool:
    """Is what was learnt within the target in nats?"""
    return nats["most"] <= nats["target"]


def verdict_in_nats(nats: Mapping[str, float]) -> str:
    """Say whether the target in nats was kept."""
    kept = "within" if keeps_nats(nats) else "above"
    return f"The mean is exact, so no epsilon holds for single values; what was learnt on average is {kept} the target in nats."


def nats_cards(nats: Mapping[str, Any] | None, adversary: str) -> list[dict[str, str]]:
    """Cards of a target in nats: what it was and what was learnt, each with the share of a value's variance."""
    if nats is None:
        return []
    explained, coordinate = words.rounded_up(nats["revealed_variance"]), readable.a_coordinate(nats.get("coordinates"))
    note = (
        f"at most, as it happened, of {coordinate}, by {adversary}; explains {explained} of the variance (R²) "
        f"of normal values of standard deviation {nats['prior_sd']:g}; an average over values, no differential privacy"
    )
    kept = f"promised before the start for any history: at most so much of {coordinate}"
    return [
        *([{"label": "nats a priori", "value": words.rounded_up(nats["a_priori"]), "note": kept}] if "a_priori" in nats else []),
        {"label": "nats learnt", "value": words.rounded_up(nats["most"]), "note": note},
        {"label": "target in nats", "value": f"{nats['target']:g}", "note": "what the parties agreed on before the start"},
    ]


def how_sure(names: Sequence[str], values: Sequence[float], errors: Sequence[float], note: str) -> SummaryCard:
    """The first estimates with the standard error of the noise; ``note``: what else there is."""
    count = _MOST_ESTIMATES if len(names) <= _MOST_ESTIMATES or max(map(len, names)) <= _SHORT else 1
    shown = [
        f"{'' if len(names) == 1 else words.short(name, _LONGEST_NAME) + ' '}{readable.with_error(value, error)}"
        for name, value, error in zip(names[:count], values, errors, strict=False)
    ]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return SummaryCard("How sure is it?", f"{'; '.join(shown)}{more}" if shown else NO_ESTIMATE, note)


def many_estimates(smaller: Sequence[bool], nouns: str, note: str) -> SummaryCard:
    """The card of many estimates, ``nouns`` in words; ``smaller``: in which of them noise is the smaller error."""
    return SummaryCard("How sure is it?", f"Noise {where_smaller(smaller, nouns)}", note)


def where_smaller(smaller: Sequence[bool], nouns: str) -> str:
    """In how many of them the noise is the smaller error."""
    few, many = sum(smaller), len(smaller)
    if few in (0, many):
        return f"{'smaller' if few else 'larger'} than the sampling error in all {many} {nouns}"
    return f"smaller than the sampling error in {few} of {many} {nouns}"


def is_smaller(noise: float, both: float) -> bool:
    """Is the noise the smaller error: is its variance at most half of that of both? ``both``: with the sampling."""
    return math.isfinite(both) and math.sqrt(2) * noise <= both


def who_is_left_out(
    execution: Execution,
    names: Sequence[str],
    records: int | None,
    absent: Sequence[str] = (),
    counts: str = "records",
    lacking: bool = False,
) -> SummaryCard:
    """The card on who is not in the result.

    ``records``: in all, if a record or a person is the unit, in words ``counts``; weights say how many each party has.

    ``absent``: parties without whom the study began. ``lacking``: answers leave records out that lack a value, or may.
    """
    counted = execution.contributors()
    silent = [names[party] for party in np.flatnonzero(~counted).tolist()]
    left_out = [words.short(name, _LONGEST_NAME) for name in (*absent, *silent)]
    there = f"{int(counted.sum())} of {count_of(execution.parties + len(absent), 'party', 'parties')}"
    there += f" ({len(execution.in_part)} in part)" if execution.in_part else ""
    if records is not None:
        there += f" and {records_in(execution, records):,} of {count_of(records, counts[:-1], counts)}"
    lost = 1.0 - execution.counted_weight() / (float(execution.weights.sum()) or 1.0)
    whose = " of those who began" if absent else ""
    part = f"; {readable.percent_text(lost)} of the weight{whose} is left out" if silent or execution.in_part else ""
    begun = (
        f" It began without {count_of(len(absent), 'party', 'parties')}, of whose {counts} nothing is known." if absent else ""
    )
    nobody = "No party" if lacking else "Nobody"
    more = f" Answers leave out {counts} that lack a value: each says of how many it is." if lacking else ""
    return SummaryCard(
        "Who is left out?", words.listed(left_out, most=_MOST_NAMES) or nobody, f"{there} are in the result{part}.{begun}{more}"
    )


def what_it_cost(privacy: PrivacyAnalysis, promised: APriori | None, spent: float) -> SummaryCard:
    """A priori, then as it happened."""
    at = f"δ = {words.power(privacy.delta)}"
    as_happened = f"As it happened: {bound(spent)}. {at}."
    if promised is None:
        return SummaryCard(
            "What did it cost?", f"{capital(bound(spent))} as it happened", f"Nothing was promised beforehand (a priori). {at}."
        )
    return SummaryCard("What did it cost?", f"{capital(bound(privacy.terms.epsilon_promised(promised)))} a priori", as_happened)


def against_whom(adversary: str, everybody: float) -> SummaryCard:
    """The card on whom the guarantee is against.

    ``adversary`` in words; ``everybody``: epsilon if all others collude.
    """
    adversaries, _, detail = adversary.partition(" (")
    proof = f"{capital(detail.removesuffix(')'))}. " if detail else ""
    return SummaryCard("Against whom?", capital(adversaries), f"{proof}Should everybody else collude: {bound(everybody)}.")


def what_is_left(account: Account | None, reason: str = "") -> SummaryCard:
    """The card of the budget that is left; ``reason``: why no ledger is known."""
    if account is None:
        return SummaryCard(
            "What is left?", "Not known: no ledger", reason or "A ledger keeps a data set's budget (certify --ledger)."
        )
    frozen = " The account is frozen." if account.frozen is not None else ""
    budget = f"Of {readable.plain(account.budget.epsilon)} for {account.name}, δ = {words.power(account.budget.delta)}.{frozen}"
    return SummaryCard("What is left?", f"ε = {remaining(account)}", budget)


def remaining(account: Account) -> str:
    """The epsilon that is left, rounded down."""
    return "0, overspent" if account.overspent else words.rounded_down(account.remaining_epsilon)


def records_in(execution: Execution, records: int) -> int:
    """How many of all ``records`` are in the result; those of parties that count in part are counted so."""
    return round(records * execution.counted_weight() / (float(execution.weights.sum()) or 1.0))


def bound(epsilon: float) -> str:
    """An epsilon as a bound, rounded up."""
    return "no bound, ε = ∞" if math.isinf(epsilon) else f"at most ε = {words.rounded_up(epsilon)}"
