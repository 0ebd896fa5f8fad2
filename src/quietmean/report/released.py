"""What a receipt states of how a study came about, and the numbers that were released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core import readable
from quietmean.core.assumptions import QueryStatement
from quietmean.core.bounds import APriori
from quietmean.core.domain import Links, counted_text
from quietmean.core.file_kinds import study_and_party
from quietmean.core.output import mapping_of
from quietmean.core.readable import count_of
from quietmean.privacy import PrivacyAnalysis
from quietmean.protocols.execution import Execution
from quietmean.report import words
from quietmean.statistics.printed import capital, may_leave_out, shown
from quietmean.statistics.tails import Z
from quietmean.statistics.tidy import Term, terms_of

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
        f"at most (realised) of {coordinate}, by {adversary}; explains {explained} of the variance (R²) "
        f"of normal values of standard deviation {nats['prior_sd']:g}; an average over values, no differential privacy"
    )
    kept = f"promised before the start for any history: at most so much of {coordinate}"
    return [
        *(
            [{"label": "guaranteed nats", "value": words.rounded_up(nats["a_priori"]), "note": kept}]
            if "a_priori" in nats
            else []
        ),
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
    if many == 1:
        return f"{'smaller' if few else 'larger'} than the sampling error in the {nouns.removesuffix('s')}"
    which = {0: "each", many: "each"}.get(few, f"{few}")
    return f"{'smaller' if few else 'larger'} than the sampling error in {which} of {many} {nouns}"


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
    """Show the guaranteed cost, then the realised one."""
    at = f"δ = {words.power(privacy.delta)}"
    as_happened = f"Realised: {bound(spent)}. {at}."
    if promised is None:
        return SummaryCard(
            "What did it cost?", f"{capital(bound(spent))}, realised", f"Nothing was guaranteed before the start. {at}."
        )
    guaranteed = bound(privacy.terms.epsilon_promised(promised))
    if guaranteed == bound(spent):
        as_happened = f"Guaranteed before the start, and realised. {at}."
    return SummaryCard("What did it cost?", f"{capital(guaranteed)}, guaranteed", as_happened)


def against_whom(adversary: str, everybody: float) -> SummaryCard:
    """The card on whom the guarantee is against.

    ``adversary`` in words; ``everybody``: epsilon if all others collude.
    """
    adversaries, _, detail = adversary.partition(" (")
    proof = f"{capital(detail.removesuffix(')'))}. " if detail else ""
    return SummaryCard("Against whom?", capital(adversaries), f"{proof}If all others collude: {bound(everybody)}.")


def what_is_left(account: Account | None, reason: str = "") -> SummaryCard:
    """The card of the budget that is left; ``reason``: why no ledger is known."""
    if account is None:
        return SummaryCard(
            "What is left?",
            "Not known: no ledger",
            reason or "A ledger keeps a data set's budget (quietmean verify receipt --ledger).",
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


_DIGESTS = ("plan", "roster", "session")


@dataclass(frozen=True)
class Stamps:
    """When, by which software and of which documents a number was released.

    ``finished``: when, as text; ``version``: of the software; ``digests``: of what, and SHA-256; what is not stated is empty.

    ``keys``: what protects what the parties sent each other. ``query``: what the owner of the data declared of the one over them.
    ``absent``: parties without whom the study began, who are none of its parties. ``whose``: of which party of which study a
    page is, see :func:`study_and_party`.
    """

    finished: str = ""
    version: str = ""
    digests: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    whose: str = ""
    keys: str = ""
    query: QueryStatement = field(default_factory=QueryStatement)

    @classmethod
    def of_origin(cls, origin: Mapping[str, Any]) -> Self:
        """Read stamps from the origin of a receipt. Entries of another form count as not stated."""
        sealed, start = (origin.get(name) for name in ("sealed", "start"))
        digests = {name: origin.get(name) for name in _DIGESTS}
        if isinstance(sealed, Mapping):
            digests = {"sealed study": sealed.get("digest"), **digests}
        absent = start.get("not_in_at_start") if isinstance(start, Mapping) else None
        return cls(
            finished=str(origin.get("finished") or ""),
            version=str(origin.get("quietmean") or ""),
            digests=tuple((name, digest) for name, digest in digests.items() if isinstance(digest, str) and digest),
            absent=tuple(map(str, absent)) if isinstance(absent, list) else (),
            whose=study_and_party(origin),
            query=QueryStatement.of_json(origin.get("query")),
            keys=next((links.text for links in Links if links == origin.get("links")), ""),
        )

    @property
    def software(self) -> str:
        return f"quietmean {self.version}" if self.version else ""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is stated, for a table: when, by which software, of what."""
        stamps = [
            ("Finished", words.moment(self.finished) if self.finished else ""),
            ("Software", self.software),
            ("Keys", self.keys),
        ]
        return [(name, text) for name, text in stamps if text] + [
            (f"Digest of the {name}", digest) for name, digest in self.digests
        ]


@dataclass(frozen=True)
class ReleasedNumber:
    """One number that was published: which term of which statistic ("" of one that is a single number), its estimate, and the
    standard error of the privacy noise (inf: unknown); ``texts``: both and the interval to quote, as every page has them.

    ``smaller``: is the noise a smaller error than the sampling; None where nothing is said about a population.
    """

    statistic: str
    term: str
    estimate: float
    error: float
    texts: tuple[str, str, str]
    smaller: bool | None = None
    these_records: bool = False
    noise_quantile: float = Z

    @property
    def name(self) -> str:
        return f"{self.statistic}, {self.term}" if self.term else self.statistic


@dataclass(frozen=True, eq=False)
class ReportFacts:
    """What a study or its receipt says besides the execution. What a bare execution file does not say is empty or None.

    ``unit``: "record", "person" or "party"; ``rows``: which of a person's count. ``sites_per_person``: at how many
    parties a person is at most. ``names``: of the parties. ``target``, ``nats``: what the parties agreed on.
    ``party_epsilon``: realised, for all that one party has.
    ``account``: of the ledger that is charged. ``influence``: how far one party can have moved what was published, in sentences.
    ``lacking``: answers leave records out that lack a value, or may.
    ``admitted``: by whose vouchers others than those with names took part, in a sentence. ``file``: that it is read from.
    """

    title: str = "An execution"
    unit: str | None = None
    rows: str | int | None = None
    sites_per_person: int = 1
    released: Sequence[ReleasedNumber] = ()
    names: Sequence[str] = ()
    target: float | None = None
    nats: float | None = None
    party_epsilon: float | None = None
    account: Account | None = None
    influence: tuple[str, ...] = ()
    lacking: bool = False
    file: str = "execution.json"
    admitted: str = ""
    stamps: Stamps = field(default_factory=Stamps)

    @property
    def counts(self) -> str:
        """What a party's weight counts, in words."""
        return counted_text(self.unit or "record", self.rows)

    @classmethod
    def of_receipt(cls, raw: Mapping[str, Any], title: str) -> ReportFacts:
        """What a receipt says, or an execution file, which says nothing of all this; ``title`` is for one that names no study.

        Entries of another form count as not stated.
        """
        result, origin, certify = (mapping_of(raw.get(name)) for name in ("result", "origin", "certify"))
        certificate = mapping_of(result.get("certificate"))
        unit, statistics = certificate.get("unit"), result.get("statistics")
        entries = [mapping_of(statistic) for statistic in statistics] if isinstance(statistics, list) else []
        sites = certificate.get("sites_per_person")
        names = origin.get("names")
        return cls(
            title=study if isinstance(study := mapping_of(origin.get("study")).get("study"), str) else title,
            unit=unit if unit in words.UNITS else None,
            rows=rows if isinstance(rows := certificate.get("rows"), str | int) else None,
            sites_per_person=sites if isinstance(sites, int) and sites > 0 else 1,
            released=released_of(entries),
            lacking=any(map(_lacks, entries)),
            names=[str(name) for name in names] if isinstance(names, list) and len(names) == raw.get("parties") else (),
            target=_number(certify.get("epsilon")),
            nats=_number(certify.get("nats")),
            party_epsilon=_number(certificate.get("whole_party_epsilon")),
            admitted=_admitted(
                mapping_of(mapping_of(mapping_of(origin.get("committee")).get("contributions")).get("by_voucher"))
            ),
            stamps=Stamps.of_origin(origin),
        )


def _admitted(by_voucher: Mapping[str, Any]) -> str:
    registrar, number, used = (by_voucher.get(name) for name in ("registrar", "number", "used"))
    if not (isinstance(registrar, str) and isinstance(number, int) and isinstance(used, int)):
        return ""
    return (
        f"besides those who are listed up to {number} by vouchers of the registrar {registrar}, {used} of whom are "
        "in the result. A registrar that lies can be all of them, and learns no more than all other contributors "
        "together"
    )


def released_of(statistics: Sequence[Mapping[str, Any]]) -> list[ReleasedNumber]:
    """What the entries of "statistics" in a result or receipt published; nothing of those that have another form."""
    return [each for entry in statistics if "estimate" in entry for each in _of_entry(entry)]


def _of_entry(entry: Mapping[str, Any]) -> list[ReleasedNumber]:
    try:
        terms = terms_of(entry)
    except (LookupError, TypeError, ValueError, AttributeError):
        return []
    sampled = entry.get("standard_error_population") is not None
    return [_released(term, is_smaller(term.noise_error, term.error) if sampled else None) for term in terms]


def _lacks(entry: Mapping[str, Any]) -> bool:
    try:
        return may_leave_out(entry)
    except (LookupError, TypeError, ValueError, AttributeError):
        return False


def _released(term: Term, smaller: bool | None) -> ReleasedNumber:
    texts, parts = shown(term), (part for part in (term.group, term.own) if part)
    error = math.inf if math.isnan(term.noise_error) else term.noise_error
    return ReleasedNumber(
        term.name,
        ", ".join(parts),
        term.estimate,
        error,
        (texts.estimate, texts.noise_error, texts.interval),
        smaller,
        term.these_records,
        term.noise_quantile,
    )


def _number(value: Any) -> float | None:
    if value == "inf":
        return math.inf
    return float(value) if isinstance(value, int | float) else None
