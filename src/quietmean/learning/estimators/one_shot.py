"""One release of statistics: in one process the same study, plan, encoding and certificate as between machines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from quietmean.core.arrays import Array
from quietmean.core.codec import canonical_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.keywords import as_keyword
from quietmean.core.party import Vector
from quietmean.learning.sites import FitSite, parties_of
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.protocols.target import budget_warnings
from quietmean.statistics import Estimates, Released
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.feasible import feasible
from quietmean.studies.outcome.outcome import StudyOutcome


@dataclass(frozen=True, eq=False)
class OneShot:
    """What one release gave. ``notes``: for the owner of the data only."""

    outcome: StudyOutcome
    mean: Vector
    step: float
    noise: float
    notes: tuple[str, ...]

    @property
    def estimates(self) -> tuple[Estimates, ...]:
        """The estimates of each statistic that was asked for."""
        return tuple(answer.estimates for answer in self.outcome.answers)

    @property
    def predictors(self) -> tuple[Estimates, ...]:
        """Estimates with the terms for which no interval holds: to predict with."""
        workload, released = self.outcome.workload, self.released
        return tuple(workload.with_columns(statistic).to_predict(released) for statistic in workload.statistics)

    @property
    def weight(self) -> float:
        """Records, or parties where they are the unit."""
        return self.outcome.answers[0].records

    @property
    def released(self) -> Released:
        """The quantities that the estimates are made of."""
        return self.outcome.workload.decoder(self.step).released(self.mean, self.noise, self.weight)


def release(fields: Mapping[str, Any], parts: Sequence[Array], site: FitSite) -> OneShot:
    """One study of the tables ``fields``, with the records (rows, columns) of each party that is here.

    Raises :class:`InputError` for what cannot be asked or if the noise would hide everything, before anything is sent, and
    :class:`ProtocolFailure` without a result.
    """
    terms, plan = planned(fields, parties_of(site, len(parts) if site.members is None else None))
    # At a site nobody knows how many records all have.
    records = float(sum(map(len, parts))) if site.members is None else None
    units = float(plan.target.parties) if terms.unit == PrivacyUnit.PARTY else records
    try:
        feasible(terms, plan.target.parties, units=units, planned=Choice(plan), hope=units is not None)
    except InputError as error:
        # It is a parameter of the estimator, whose method was called.
        error.words = partial(as_keyword, ("accept_wide",))
        raise
    outcome, mean, notes = site.release(terms, plan, parts)
    deviation = math.sqrt(stated_variance(outcome.execution))
    return OneShot(outcome, mean, plan.value_step, deviation, (*budget_warnings(plan.target, records), *notes))


def planned(fields: Mapping[str, Any], parties: int) -> tuple[StudyTerms, Plan]:
    """The study and its plan, which is made once for each: folds and copies of an estimator ask for the same."""
    return _planned(canonical_json(dict(fields)), parties)


@lru_cache(maxsize=64)
def _planned(text: bytes, parties: int) -> tuple[StudyTerms, Plan]:
    terms = StudyTerms.parse(json.loads(text))
    return terms, terms.plan(parties)
