"""Rounds of a model without parties: exact means of vectors, or with noise of a deviation that is given."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from quietmean.learning.models.answers import Fit
from quietmean.learning.models.model import ModelByRounds
from quietmean.learning.models.state import DesignRows, FitState
from quietmean.sessions import RoundMean

Array = NDArray[np.float64]


def moved(
    newton: FitState,
    rows: Sequence[DesignRows],
    noise: float = 0.0,
    rng: np.random.Generator | None = None,
    counted: Sequence[float] = (1.0,),
) -> None:
    """One round of all parties, or of which as much is said to be ``counted``."""
    vectors = np.vstack([newton.vectors(one) for one in rows])
    mean = vectors.mean(axis=0)
    if rng is not None:
        mean = mean + noise * rng.standard_normal(len(mean))
    execution = SimpleNamespace(counted_weight=lambda: float(len(vectors)), parts=np.array(counted))
    released = SimpleNamespace(round=newton.round + 1, mean=mean, standard_error=noise, execution=execution)
    newton.move(cast(RoundMean[Any], released))


def fitted(model: ModelByRounds, parts: Sequence[Array], noise: float = 0.0, rng: np.random.Generator | None = None) -> Fit:
    """A fit of the records (N, columns) of each party, after all rounds of the model."""
    design = model._design_for(len(parts))
    newton = model._begin(design)
    rows = [model._rows(design, part, place) for place, part in enumerate(parts)]
    for _ in range(model.rounds):
        moved(newton, rows, noise, rng)
    return model.fit_of(design, newton)
