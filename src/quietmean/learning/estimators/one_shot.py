"""One release of statistics in this process: the same study, plan, encoding and certificate as between machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.codec import canonical_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.planning.plan import Plan
from quietmean.protocols.target import budget_warnings
from quietmean.sessions import Engine, MemoryEngine
from quietmean.statistics import Encoded, Estimates, Released, what_did_not_fit
from quietmean.studies.forecast import Forecast
from quietmean.studies.outcome import StudyOutcome, conclude
from quietmean.studies.study import Study

Array = NDArray[np.float64]

_ON_THE_COMMAND_LINE = "with --accept-wide (in a study file accept_wide = true)"


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
        """Of each statistic that was asked for."""
        return tuple(answer.estimates for answer in self.outcome.answers)

    @property
    def weight(self) -> float:
        """Records, or parties where they are the unit."""
        return self.outcome.answers[0].records

    @property
    def released(self) -> Released:
        """The quantities that the estimates are made of."""
        return self.outcome.workload.decoder(self.step).released(self.mean, self.noise, self.weight)


def release(asked: Mapping[str, Any], parts: Sequence[Array], engine: Engine | None) -> OneShot:
    """One study of the tables ``asked``, with the records (rows, columns) of each party.

    Raises :class:`InputError` for what cannot be asked or if the noise would hide everything, before anything is sent, and
    :class:`ProtocolFailure` without a result.
    """
    terms, plan = planned(asked, len(parts))
    workload, records = terms.workload, float(sum(map(len, parts)))
    units = float(len(parts)) if terms.unit == PrivacyUnit.PARTY else records
    try:
        Forecast(terms, plan, units).require_hope()
    except InputError as error:
        raise InputError(str(error).replace(_ON_THE_COMMAND_LINE, "with accept_wide=True")) from None
    encoded = [workload.encode(part, step=plan.value_step) for part in parts]
    values = {party: plan.admit(one.vector, one.weight).vector for party, one in enumerate(encoded)}
    weights = np.array([one.weight for one in encoded])
    found = (MemoryEngine() if engine is None else engine).exchange(plan, 1, values, weights, {})
    outcome = conclude(workload, plan.target, found.execution, found.mean)
    notes = (*budget_warnings(plan.target, records), *what_did_not_fit(encoded))
    return OneShot(outcome, found.mean, plan.value_step, float(np.sqrt(found.variance)), notes)


def clamped_note(parts: Sequence[Array], limits: Array) -> list[str]:
    """The same sentence for records (rows, d) that take no study; ``limits``: bounds, shape (d, 2)."""
    counts = [(int(((part < limits[:, 0]) | (part > limits[:, 1])).sum()), int(np.isnan(part).sum())) for part in parts]
    return what_did_not_fit([Encoded(np.zeros(0), 1.0, *each) for each in counts])


def planned(asked: Mapping[str, Any], parties: int) -> tuple[Study, Plan]:
    """The study and its plan, which is made once for each: folds and copies of an estimator ask for the same."""
    return _planned(canonical_json(dict(asked)), parties)


@lru_cache(maxsize=64)
def _planned(text: bytes, parties: int) -> tuple[Study, Plan]:
    terms = Study.parse(json.loads(text))
    return terms, terms.plan(parties)
