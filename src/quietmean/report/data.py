"""The data that a report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.domain import Neighbouring, PrivacyUnit, counted_text
from quietmean.core.noise_law import NoiseLaw
from quietmean.core.readable import count_of
from quietmean.privacy import CoalitionCertificate, PrivacyAnalysis
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.report.released import Stamps
from quietmean.statistics import Answer, column_means, combined
from quietmean.statistics.estimates import Estimates

if TYPE_CHECKING:
    from quietmean.ledger import Account

# Numbers beyond these are not drawn: figures are in the units of the data.
LARGEST, SMALLEST = 1e100, 1e-100


class ReportedOutcome(Protocol):
    """What everybody knows after a study, as :class:`quietmean.studies.StudyOutcome` says it."""

    @property
    def answers(self) -> tuple[Answer, ...]: ...
    @property
    def target(self) -> Target: ...
    @property
    def execution(self) -> Execution: ...
    @property
    def privacy(self) -> PrivacyAnalysis: ...
    @property
    def certificate(self) -> CoalitionCertificate: ...
    @property
    def nats(self) -> Mapping[str, float] | None: ...
    @property
    def party_epsilon(self) -> float | None: ...
    @property
    def parties_counted(self) -> int: ...
    @property
    def influence_sentences(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> str | int | None: ...
    @property
    def sites_per_person(self) -> int: ...
    @property
    def these_records(self) -> bool: ...


@dataclass(frozen=True, eq=False)
class StudyReport:
    """One study, as one party knows it after the end, or a machine that ran all parties.

    Arrays over what was estimated have shape (terms,), in the units of the data; NaN where the noise hides it.

    ``only_means``: every term is a column, and its estimate the column's mean. ``bounds``: what a term can be at the least and
    at the most. ``privacy`` gives all epsilons, ``certificate`` is that of the study. ``truth`` and ``killed``
    only in local mode.
    ``records``: of all parties, counted or not (parties, where these are the unit), None where nothing
    tells; see :attr:`counts_are_private`.
    ``messages`` and ``bytes`` were sent by those whom ``sent_by`` names in words: who was killed has said no number.
    ``of_noise`` and ``population``: intervals of the noise and for the population, (terms, 2), NaN where there is none.
    ``account``: of the ledger that was charged. ``notes``: what could not be settled. ``receipt``: the name of its file.
    ``party_epsilon``: epsilon for replacing a whole party's data, where the unit is one record.
    """

    title: str
    terms: list[str]
    bounds: list[tuple[float, float]]
    estimate: Array
    standard_error: Array
    of_noise: Array
    execution: Execution
    privacy: PrivacyAnalysis
    certificate: CoalitionCertificate
    target_epsilon: float
    unit: str
    party_names: list[str]
    records: int | None
    parties_counted: int
    messages: int
    bytes: int
    seconds: float
    sent_by: str = ""
    truth: Array | None = None
    party_epsilon: float | None = None
    only_means: bool = True
    # What each statistic says, and the same without noise where it is known; none for a page about means alone.
    answers: tuple[Answer, ...] = ()
    true_answers: tuple[Answer, ...] | None = None
    killed: list[str] = field(default_factory=list)
    population: Array | None = None
    stamps: Stamps = field(default_factory=Stamps)
    account: Account | None = None
    notes: tuple[str, ...] = ()
    receipt: str = "receipt.json"
    # Of a target in nats; see :meth:`quietmean.privacy.PrivacyAnalysis.nats_of_target`.
    nats: Mapping[str, Any] | None = None
    # How far one party can have moved the answers; none where nobody said.
    influence: tuple[str, ...] = ()
    # Where persons are the unit: which of their rows count, and at how many parties one is at most.
    rows: str | int | None = None
    sites_per_person: int = 1
    # Is it about these records alone? Then nothing is said of a population.
    these_records: bool = False
    # Of the noise, where it is not normal.
    law: NoiseLaw | None = None

    @classmethod
    def of_outcome(
        cls,
        title: str,
        outcome: ReportedOutcome,
        names: Sequence[str],
        *,
        truth: tuple[Answer, ...] | None = None,
        **more: Any,
    ) -> Self:
        """From what everybody knows after a study, and ``names`` of the parties; ``truth``: the answers without noise.

        ``more``: the fields that the outcome does not give, such as messages, bytes and seconds.
        """
        answers = outcome.answers
        estimates = combined(answers)
        by_record = outcome.target.unit.within_party
        return cls(
            title=title,
            terms=list(estimates.terms),
            only_means=len(column_means(answers)) == len(answers),
            bounds=list(zip(estimates.low.tolist(), estimates.high.tolist(), strict=True)),
            estimate=estimates.value,
            standard_error=estimates.standard_error,
            of_noise=estimates.of_noise,
            law=estimates.law,
            population=_population(estimates),
            execution=outcome.execution,
            privacy=outcome.privacy,
            certificate=outcome.certificate,
            target_epsilon=outcome.target.epsilon,
            nats=outcome.nats,
            unit=str(outcome.target.unit),
            party_names=list(names),
            records=_records(outcome) if by_record else len(names),
            parties_counted=outcome.parties_counted,
            truth=None if truth is None else combined(truth).value,
            party_epsilon=outcome.party_epsilon,
            influence=outcome.influence_sentences,
            rows=outcome.rows,
            sites_per_person=outcome.sites_per_person,
            these_records=outcome.these_records,
            answers=answers,
            true_answers=truth,
            **more,
        )

    @property
    def first_terms(self) -> list[int]:
        """The place of the first answer of each statistic in what was estimated; of a page about means alone all."""
        if self.only_means or not self.answers:
            return list(range(len(self.terms)))
        places, begin = [], 0
        for answer in self.answers:
            estimates = answer.estimates
            places.append(begin + (estimates.terms.index(estimates.headline[0]) if estimates.headline else 0))
            begin += len(estimates.terms)
        return places

    @property
    def counts(self) -> str:
        """What :attr:`records` counts, in words."""
        return counted_text(self.unit, self.rows)

    def counted(self, number: int) -> str:
        """So many parties in words."""
        return count_of(number, self.counts[:-1], self.counts)

    @property
    def records_total(self) -> int | None:
        """The records of all parties together, if a record is the unit and their number is public."""
        return self.records if PrivacyUnit(self.unit).within_party and not self.counts_are_private else None

    @property
    def counts_are_private(self) -> bool:
        """Is it private how many records a party has? Then :attr:`records` is an estimate of those that are in the result."""
        return self.execution.neighbouring == Neighbouring.ADD_REMOVE

    @property
    def delta(self) -> float:
        """The delta at which all epsilons hold."""
        return self.privacy.delta


def _population(estimates: Estimates) -> Array | None:
    """The intervals of the population, or None if there is none."""
    ends = estimates.of_population
    return None if ends is None or np.isnan(ends).all() else ends


def _records(outcome: ReportedOutcome) -> int | None:
    """The number of records; where counts are private, an estimate of those in the result, or None where nothing tells."""
    if outcome.target.neighbouring == Neighbouring.ADD_REMOVE:
        records = outcome.answers[0].records
        return None if math.isnan(records) else max(round(records), 0)
    return round(float(outcome.execution.weights.sum()))
