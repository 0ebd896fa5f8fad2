"""What a receipt states of how a study came about, and the numbers that were released."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from quietmean.core.assumptions import QueryStatement
from quietmean.core.domain import Links, counted_text
from quietmean.core.file_kinds import study_and_party
from quietmean.report import summary_card, words
from quietmean.statistics.printed import may_leave_out, shown
from quietmean.statistics.tidy import Term, terms_of

if TYPE_CHECKING:
    from quietmean.ledger import Account

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
    standard error of the privacy noise (inf: unknown); ``texts``: both and the population's interval, as every page has them.

    ``smaller``: is the noise a smaller error than the sampling; None where nothing is said about a population.
    """

    statistic: str
    term: str
    estimate: float
    error: float
    texts: tuple[str, str, str]
    smaller: bool | None = None

    @property
    def name(self) -> str:
        return f"{self.statistic}, {self.term}" if self.term else self.statistic


@dataclass(frozen=True, eq=False)
class ReportFacts:
    """What a study or its receipt says besides the execution. What a bare execution file does not say is empty or None.

    ``unit``: "record", "person" or "party"; ``rows``: which of a person's count. ``sites_per_person``: at how many
    parties a person is at most. ``names``: of the parties. ``target``, ``nats``: what the parties agreed on.
    ``party_epsilon``: as it happened, for all that one party has.
    ``account``: of the ledger that is charged. ``influence``: how far one party can have moved what was published, in sentences.
    ``lacking``: answers leave records out that lack a value, or may.
    ``admitted``: by whose vouchers others than those with names took part, in a sentence.
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
        result, origin, certify = (_mapping(raw.get(name)) for name in ("result", "origin", "certify"))
        certificate = _mapping(result.get("certificate"))
        unit, statistics = certificate.get("unit"), result.get("statistics")
        entries = [_mapping(statistic) for statistic in statistics] if isinstance(statistics, list) else []
        sites = certificate.get("sites_per_person")
        names = origin.get("names")
        return cls(
            title=study if isinstance(study := _mapping(origin.get("study")).get("study"), str) else title,
            unit=unit if unit in words.UNITS else None,
            rows=rows if isinstance(rows := certificate.get("rows"), str | int) else None,
            sites_per_person=sites if isinstance(sites, int) and sites > 0 else 1,
            released=released_of(entries),
            lacking=any(map(_lacks, entries)),
            names=[str(name) for name in names] if isinstance(names, list) and len(names) == raw.get("parties") else (),
            target=_number(certify.get("epsilon")),
            nats=_number(certify.get("nats")),
            party_epsilon=_number(certificate.get("whole_party_epsilon")),
            admitted=_admitted(_mapping(_mapping(_mapping(origin.get("committee")).get("contributions")).get("by_voucher"))),
            stamps=Stamps.of_origin(origin),
        )


def _admitted(by_voucher: Mapping[str, Any]) -> str:
    registrar, number, used = (by_voucher.get(name) for name in ("registrar", "number", "used"))
    if not (isinstance(registrar, str) and isinstance(number, int) and isinstance(used, int)):
        return ""
    return (
        f"besides those who are listed up to {number} by vouchers of the registrar {registrar}, {used} of whom are in the "
        "result; a registrar that lies can be all of them, and learns no more than all other contributors together"
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
    return [_released(term, summary_card.is_smaller(term.noise_error, term.error) if sampled else None) for term in terms]


def _lacks(entry: Mapping[str, Any]) -> bool:
    try:
        return may_leave_out(entry)
    except (LookupError, TypeError, ValueError, AttributeError):
        return False


def _released(term: Term, smaller: bool | None) -> ReleasedNumber:
    texts, parts = shown(term), (part for part in (term.group, term.own) if part)
    error = math.inf if math.isnan(term.noise_error) else term.noise_error
    return ReleasedNumber(
        term.name, ", ".join(parts), term.estimate, error, (texts.estimate, texts.noise_error, texts.population), smaller
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    if value == "inf":
        return math.inf
    return float(value) if isinstance(value, int | float) else None
