"""Models by rounds: generalized linear models, proportional hazards, and the one that a session says it fits."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Unpack

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.readable import listed
from quietmean.core.schema import require_known
from quietmean.learning.models.families import FAMILIES, Binomial, Hazard, Scaled
from quietmean.learning.models.formulas import FormulaTerms, ModelDesign
from quietmean.learning.models.model import VERSION, ModelByRounds, ModelKeywords
from quietmean.learning.models.scored import BEFORE
from quietmean.learning.models.state import DesignRows
from quietmean.statistics import Column, Columns
from quietmean.statistics.models import MODELS, asks_model, require_declared
from quietmean.statistics.names import split
from quietmean.statistics.questions import read_questions
from quietmean.studies.agreement.session_study import SessionStudy


class GeneralizedLinearModel(ModelByRounds):
    """``formula``, such as ``ill ~ age * arm + bs(bmi, knots=[25, 30])``, in which interactions, polynomials (``poly``), splines
    (``bs``), ``log`` and factors (``C``) mean what they mean in R; knots and whatever else a term computes come from the public
    bounds alone.

    ``columns``: declared as in a study. ``family``: "binomial" (log odds of a boolean outcome), "poisson", "negative-binomial"
    (variance m + ``dispersion`` m^2, public) or "gamma", of logarithms of means; "gaussian", of a number: least squares. Noise is
    at the scale of the data, not of the bounds, which rounds find but for "binomial". ``exposure``: a column by whose values
    means are multiplied, as person-years are. ``where``: a condition such as ``age >= 50 and sex == 'f'``; all other records add
    nothing. ``rounds``: 12 by default, 6 of a binomial model.

    Privacy unit: one record, over all rounds together, under replacement: ``epsilon`` and ``delta``. ``colluding``, ``dropouts``,
    ``protocol``, ``options`` as in :class:`~quietmean.Study`; ``site``, a :class:`quietmean.Site`: this party's part between
    machines, where each site makes the same call; by default all parties are in this process.

    Fitted: ``coefficients`` and ``ratios``, both :class:`~quietmean.statistics.Estimates`; ``epsilon``, ``charge``,
    ``executions``. Raises :class:`InputError` for a formula or columns that cannot be.
    """

    kind = "generalized-linear-model"

    @python_call
    def __init__(
        self,
        formula: str,
        columns: Iterable[Column | Mapping[str, Any]],
        *,
        family: str = "binomial",
        exposure: str = "",
        dispersion: float = 1.0,
        where: str = "",
        rounds: int | None = None,
        **general: Unpack[ModelKeywords],
    ) -> None:
        require_known("family", family, tuple(sorted(FAMILIES)))
        super().__init__(columns, FAMILIES[family].rounds if rounds is None else rounds, general, where)
        self.formula, self._named, self.exposure, self.dispersion = formula, family, exposure, float(dispersion)
        self.terms = FormulaTerms(formula, self.columns)
        self.family  # noqa: B018 - refused here
        if self.terms.outcome in self.terms.used:
            raise InputError(f"column {self.terms.outcome!r} is the outcome and on the right, too. Leave it out there.")
        if isinstance(self.family, Scaled) and self.rounds <= BEFORE:
            raise InputError(
                f"rounds is {self.rounds}. A {family} model needs {BEFORE} to find its scale. Choose at least {BEFORE + 1}."
            )
        if exposure:
            if family == "binomial":
                raise InputError("exposure multiplies means, and a binomial model has odds. Leave it out.")
            if family == "gaussian":
                raise InputError("exposure multiplies means, and a gaussian model adds its terms. Leave it out.")
            if self.columns.number(exposure).high <= 0:
                raise InputError(f"column {exposure!r} is the exposure and has no values above 0. Declare other bounds.")

    @cached_property
    def family(self) -> Binomial | Scaled:
        return FAMILIES[self._named].of(self.columns[self.terms.outcome], self.dispersion)

    def describe(self) -> dict[str, Any]:
        """What all parties have to do alike, in plain data."""
        return {
            "formula": self.formula,
            "columns": [column.describe() for column in self.columns],
            "family": self._named,
            **({"exposure": self.exposure} if self.exposure else {}),
            **({"dispersion": self.dispersion} if self._named == "negative-binomial" else {}),
            **({"where": self.where} if self.where else {}),
        }

    def _design_for(self, parties: int) -> ModelDesign:
        return self._design

    @cached_property
    def _design(self) -> ModelDesign:
        return ModelDesign(self.terms)

    @property
    def _largest_offset(self) -> float:
        return math.log(self.columns[self.exposure].high) if self.exposure else 0.0

    def _rows(self, design: ModelDesign, records: Array, place: int) -> DesignRows:
        outcome = self.columns[self.terms.outcome]
        needed = [*self.terms.used, outcome.name, *([self.exposure] if self.exposure else [])]
        complete = self._complete(records, needed)
        by_name = dict(zip(self.columns.names, records.T, strict=True))
        offset = np.zeros(len(records))
        if self.exposure:
            exposed = np.minimum(by_name[self.exposure], self.columns[self.exposure].high)
            complete &= exposed > 0
            offset[complete] = np.log(exposed[complete])
        used = {name: by_name[name][complete] for name in self.terms.used or self.columns.names[:1]}
        values = by_name[outcome.name][complete]
        values = values if outcome.boolean else np.clip(values, self.family.low, self.family.high)
        return DesignRows(design.rows(used), values, offset[complete], np.flatnonzero(complete), len(records))


COMMON, SHIFTED, OWN = "common", "shifted", "own"
BASELINES = {COMMON: "", SHIFTED: " + party", OWN: " + interval:party"}
_INTERVAL, _PARTY = "interval", "party"


class ProportionalHazards(ModelByRounds):
    """Hazard ratios of the terms of ``formula``, such as ``~ age + arm``, for the ``event`` (a boolean column) at ``time``, seen
    in the intervals between ``edges``: grouped proportional hazards, where the log hazard of an interval is a baseline and terms.

    Rounds have no partial likelihood, as one record would move its score by many; here each record adds scores of its own
    intervals. ``baseline``: one for all parties ("common"), with a factor for each party ("shifted"), or for each party one of
    its own ("own", which takes many records at each). Who is censored within an interval counts with the part of it that was
    seen.
    Everything else as in :class:`GeneralizedLinearModel`, but for ``where``.
    """

    kind = "proportional-hazards"

    @python_call
    def __init__(
        self,
        formula: str,
        columns: Iterable[Column | Mapping[str, Any]],
        *,
        time: str,
        event: str,
        edges: Sequence[float],
        baseline: str = COMMON,
        rounds: int = Hazard.rounds,
        **general: Unpack[ModelKeywords],
    ) -> None:
        super().__init__(columns, rounds, general)
        self.formula, self.time, self.event, self.baseline = formula, time, event, baseline
        self.edges = tuple(float(edge) for edge in edges)
        require_known("baseline", baseline, tuple(BASELINES))
        if len(self.edges) < 2 or not all(0 <= low < high for low, high in pairwise(self.edges)):
            raise InputError("edges are not the ends of intervals of time. Give two or more rising numbers from 0 on.")
        if self.columns.number(time).low < 0:
            raise InputError(f"column {time!r} is the time and may be below 0. Declare it with bounds from 0 on.")
        for name in (_INTERVAL, _PARTY):
            if name in self.columns.names:
                raise InputError(f"a column is called {name!r}, which the baseline has. Call it something else.")
        self.terms = FormulaTerms(formula, self.columns)
        if self.terms.outcome:
            raise InputError(f"{formula!r} names an outcome. Write ~ term + term, and give time and event.")
        for name in (time, event):
            if name in self.terms.used:
                raise InputError(f"column {name!r} is in the outcome and on the right, too. Leave it out there.")
        self.family  # noqa: B018 - refused here

    @cached_property
    def family(self) -> Hazard:
        return Hazard.of(self.columns[self.event], 1.0)

    def describe(self) -> dict[str, Any]:
        """What all parties have to do alike, in plain data."""
        return {
            "formula": self.formula,
            "columns": [column.describe() for column in self.columns],
            "time": self.time,
            "event": self.event,
            "edges": list(self.edges),
            "baseline": self.baseline,
        }

    @property
    def by_party(self) -> bool:
        """Whether each party has a baseline of its own, or a factor."""
        return self.baseline != COMMON

    @property
    def _most_rows(self) -> int:
        return len(self.edges) - 1

    @property
    def intervals(self) -> tuple[str, ...]:
        """What they are called."""
        return tuple(f"{low:g} to {high:g}" for low, high in pairwise(self.edges))

    def _design_for(self, parties: int) -> ModelDesign:
        intervals = self.intervals if len(self.intervals) > 1 else (*self.intervals, "later")
        more = [Column(name=_INTERVAL, levels=intervals)]
        if self.baseline != COMMON:
            more.append(Column(name=_PARTY, levels=tuple(f"{place + 1}" for place in range(parties))))
        right = split(self.formula, "~")[-1]
        formula = f"~ 0 + {_INTERVAL}{BASELINES[self.baseline]} + {right}"
        return ModelDesign(FormulaTerms(formula, Columns([*self.columns, *more])))

    def _headline(self, design: ModelDesign) -> Iterable[str]:
        return (name for name in design.names if not name.startswith((f"{_INTERVAL}[", f"{_PARTY}[")))

    def _groups(self, design: ModelDesign) -> dict[str, Sequence[int]]:
        return {name: places for name, places in design.terms.groups.items() if not name.startswith((_INTERVAL, _PARTY))}

    def _rows(self, design: ModelDesign, records: Array, place: int) -> DesignRows:
        complete = np.flatnonzero(self._complete(records, [*self.terms.used, self.time, self.event]))
        by_name = dict(zip(self.columns.names, records[complete].T, strict=True))
        time, event = np.maximum(by_name[self.time], 0.0), by_name[self.event] > 0.5
        # A time beyond its bound is censored there.
        last = self.columns[self.time].high
        event, time = event & (time <= last), np.minimum(time, last)
        low, high = np.array(self.edges[:-1]), np.array(self.edges[1:])
        here = time[:, None] > low
        # An event at the very beginning is one of the first interval.
        here[:, 0] |= event & (time == low[0])
        record, interval = np.nonzero(here)
        seen = np.clip(time[record] - low[interval], 0.0, high[interval] - low[interval]) / (high - low)[interval]
        happens = event[record] & (time[record] <= high[interval])
        used = {name: by_name[name][record] for name in self.terms.used}
        used[_INTERVAL] = interval.astype(np.float64)
        if self.baseline != COMMON:
            used[_PARTY] = np.full(len(record), float(place))
        offset = np.where(happens, 0.0, np.log(np.maximum(seen, 1e-12)))
        return DesignRows(design.rows(used), happens.astype(np.float64), offset, complete[record], len(records))


_KINDS: dict[str, type[GeneralizedLinearModel] | type[ProportionalHazards]] = {
    model.kind: model for model in (GeneralizedLinearModel, ProportionalHazards)
}
# Of a purpose, what says which model it is, and what follows from that.
_NAMES = ("kind", "model", "version", "schedule")


def model_parameters(kind: str) -> dict[str, inspect.Parameter]:
    """What a question says of a kind of model: its own parameters besides columns, by name."""
    signature = inspect.signature(_KINDS[kind])
    return {name: one for name, one in signature.parameters.items() if name not in ("columns", "general")}


def asked_model(questions: Sequence[str], **general: Unpack[ModelKeywords]) -> GeneralizedLinearModel | ProportionalHazards:
    """Return the model that questions ask for, such as ``glm(ill in yes/no ~ age in 30..80)``, with the domains of its columns.

    ``general``: ``epsilon``, ``delta`` and what else every model is given. Raises :class:`InputError` for questions that ask for
    something else besides, and for a model that cannot be.
    """
    columns, asked = read_questions(questions)
    if len(asked) != 1 or asked[0]["kind"] not in _KINDS:
        raise InputError("a model by rounds is a session of its own. Ask for one model, and for nothing else.")
    fields = asked[0]
    if lacking := [name for name in MODELS[fields["kind"]].needed if name not in fields]:
        raise InputError(f"{fields['kind']} lacks {listed(lacking)}. Write {fields['kind']}({MODELS[fields['kind']].example}).")
    require_declared(next(text for text in questions if asks_model([text])), fields, [column["name"] for column in columns])
    kind = _KINDS[fields.pop("kind")]
    return kind(fields.pop("formula"), columns, **fields, **general)


def model_of(study: SessionStudy, parties: int) -> ModelByRounds:
    """The model that such a session of so many parties fits.

    Raises :class:`InputError` for one that is not what this program makes of the same words, as of another version.
    """
    purpose: Mapping[str, Any] = study.purpose
    kind = _KINDS.get(str(purpose.get("model")))
    if kind is None:
        raise InputError(
            f"the session fits {purpose.get('model')!r}, which this version does not know. Choose one of {', '.join(_KINDS)}."
        )
    if purpose.get("version") != VERSION:
        raise InputError(
            f"the session fits a model by version {purpose.get('version', 1)} of its rounds, and this program by version "
            f"{VERSION}. Install at all sites the version that its coordinator has."
        )
    fields_of_model = {name: value for name, value in purpose.items() if name not in _NAMES}
    try:
        model = kind(**fields_of_model, rounds=study.rounds, epsilon=study.epsilon, delta=study.delta)
    except TypeError:
        raise InputError(
            "the session does not state a whole model. Ask its coordinator for it, as save_study writes it."
        ) from None
    agreed = model.session_study(parties)
    if agreed.purpose != purpose or agreed.dimension != study.dimension:
        raise InputError(
            "the session and its model do not belong together. Ask its coordinator for both, as save_study writes them."
        )
    return model
