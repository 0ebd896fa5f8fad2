"""Generalized linear models by rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.schema import require_known
from quietmean.learning.models.designs import ModelDesign
from quietmean.learning.models.families import FAMILIES, Family
from quietmean.learning.models.formulas import FormulaTerms
from quietmean.learning.models.model import ModelByRounds, ModelKeywords
from quietmean.learning.models.newton import DesignRows
from quietmean.statistics import Column


class GeneralizedLinearModel(ModelByRounds):
    """``formula``, such as ``ill ~ age * arm + bs(bmi, knots=[25, 30])``, in which interactions, polynomials (``poly``), splines
    (``bs``), ``log`` and factors (``C``) mean what they mean in R; knots and whatever else a term computes come from the public
    bounds alone.

    ``columns``: declared as in a study. ``family``: "binomial" (log odds of a boolean outcome), "poisson", "negative-binomial"
    (variance m + ``dispersion`` m^2, public) or "gamma", of logarithms of means. ``exposure``: a column by whose values means are
    multiplied, as person-years are. ``rounds`` of Newton's; ``residual``: the largest distance of an outcome from its mean (of
    gamma, in parts of the mean) that counts in full, by default what the bounds allow (of gamma, 10): a smaller one needs less
    noise, and records beyond are flagged.

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
        residual: float | None = None,
        rounds: int = 6,
        **general: Unpack[ModelKeywords],
    ) -> None:
        super().__init__(columns, rounds=rounds, residual=residual, **general)
        self.formula, self._named, self.exposure, self.dispersion = formula, family, exposure, float(dispersion)
        self.terms = FormulaTerms(formula, self.columns)
        require_known("family", family, tuple(sorted(FAMILIES)))
        self.family  # noqa: B018 - refused here
        if self.terms.outcome in self.terms.used:
            raise InputError(f"column {self.terms.outcome!r} is the outcome and on the right, too: leave it out there")
        if exposure:
            if family == "binomial":
                raise InputError("exposure multiplies means, and a binomial model has odds: leave it out")
            if self.columns.number(exposure).high <= 0:
                raise InputError(f"column {exposure!r} is the exposure and has no values above 0: declare other bounds")

    @cached_property
    def family(self) -> Family:
        return FAMILIES[self._named].of(self.columns[self.terms.outcome], self.residual, self.dispersion)

    def describe(self) -> dict[str, Any]:
        """What all parties have to do alike, in plain data."""
        return {
            "formula": self.formula,
            "columns": [column.describe() for column in self.columns],
            "family": self._named,
            **({"exposure": self.exposure} if self.exposure else {}),
            **({"dispersion": self.dispersion} if self._named == "negative-binomial" else {}),
            **({} if self.residual is None else {"residual": self.residual}),
        }

    def _design_for(self, parties: int) -> ModelDesign:
        return self._design

    @cached_property
    def _design(self) -> ModelDesign:
        return ModelDesign(self.terms)

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
