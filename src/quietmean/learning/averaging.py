"""Averages of models over a session in one process: each round moves the shared public model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietmean.core.errors import InputError
from quietmean.core.keywords import refuses_unknown_keywords
from quietmean.core.party import PartyId
from quietmean.learning.shared import SharedModel
from quietmean.planning.automatic import AUTO
from quietmean.sessions import Engine, RoundMean, Session

# The standard deviation that the fraction of differences within C may have.
MOST_ERROR = 0.1
# What adaptive clipping may take of the squared length of a vector.
_MOST_PART = 0.1


class ModelAveraging:
    """``model``, public, with which everybody starts: nested dicts, lists and tuples of arrays, or a ``state_dict`` of PyTorch.

    ``clip``: the largest L2 norm of a difference (of a record's gradient where ``unit`` is "record"), in the units of the
    model; with ``adaptive`` where it begins, and ``quantile`` the part of all norms that shall lie within it.
    ``learning_rate``, ``momentum`` and ``decay`` (the gradient of an L2 penalty) are applied to what was released. Everything
    else as in :class:`~quietmean.sessions.Session`. After a crash: the last :attr:`model` and :attr:`clip`, and the same
    ``store``. Raises :class:`InputError` for a model without arrays, with statistics of BatchNorm, and for adaptive clipping
    whose fraction would have a standard deviation above 0.1.
    """

    @refuses_unknown_keywords
    def __init__(
        self,
        model: Any,
        *,
        parties: int,
        rounds: int,
        epsilon: float,
        delta: float,
        clip: float = 1.0,
        adaptive: bool = False,
        quantile: float = 0.5,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        decay: Any = 0.0,
        unit: str = "party",
        colluding: float = 0.1,
        dropouts: float = 0.0,
        records: int | None = None,
        weights: ArrayLike | None = None,
        protocol: str = AUTO,
        options: Mapping[str, Any] | None = None,
        store: str | Path | None = None,
        engine: Engine | None = None,
    ) -> None:
        moved = {"clip": clip, "learning_rate": learning_rate, "momentum": momentum, "quantile": quantile, "decay": decay}
        self._shared = SharedModel(model, **moved)
        self.session = Session(
            parties=parties,
            dimension=self._shared.dimension + adaptive,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            unit=unit,
            colluding=colluding,
            dropouts=dropouts,
            weights=weights,
            protocol=protocol,
            options=options,
            store=store,
            engine=engine,
        )
        if adaptive:
            self._shared = SharedModel(model, indicator=self._weight_of_indicator(records), **moved)
        self.last: RoundMean[PartyId] | None = None

    @property
    def model(self) -> Any:
        """The public model as it is now, in the structure, shapes and types of the first."""
        return self._shared.model

    @property
    def clip(self) -> float:
        """The largest L2 norm of a difference in the next round."""
        return self._shared.clip

    @property
    def within(self) -> float | None:
        """With adaptive clipping: the released part of the norms of the last round that lay within the bound."""
        return self._shared.within

    @property
    def epsilon(self) -> float:
        """What the rounds so far cost at most."""
        return self.session.epsilon

    @property
    def over(self) -> bool:
        """Whether no round is left."""
        return self.session.over

    @refuses_unknown_keywords
    def average(self, models: Sequence[Any] | Mapping[PartyId, Any], *, leaves: Mapping[PartyId, int] | None = None) -> Any:
        """One round: the public model moves by the mean of the parties' differences from it. The new public model.

        ``models``: what each party trained, in order, None for who misses this round; or by party. Raises :class:`InputError`,
        and nothing is spent, for a model of another structure; :class:`ProtocolFailure` for a round without a result.
        """
        if str(self.session.terms.unit) != "party":
            raise InputError("models are averaged where whole parties are protected: hand gradients of records to descend")
        given = {
            party: self._shared.difference(model, f"the model of party {party}") for party, model in _by_party(models).items()
        }
        return self._moved(given, leaves)

    @refuses_unknown_keywords
    def descend(self, gradients: Sequence[Any] | Mapping[PartyId, Any], *, leaves: Mapping[PartyId, int] | None = None) -> Any:
        """One round where records are protected: a step against the mean gradient of all records. The new public model.

        ``gradients``: of each party's records at the public :attr:`model`, each array with one axis more in front, of size N.
        Raises as :meth:`average` does.
        """
        if str(self.session.terms.unit) != "record":
            raise InputError("gradients of records are for unit='record': hand whole models to average")
        given = {party: self._shared.steps(one, f"the gradients of party {party}") for party, one in _by_party(gradients).items()}
        return self._moved(given, leaves)

    def _moved(self, given: Mapping[PartyId, NDArray[np.float64]], leaves: Mapping[PartyId, int] | None) -> Any:
        self.last = self.session.mean(given, clip=1.0, leaves=leaves)
        return self._shared.move(self.last)

    def _weight_of_indicator(self, records: int | None) -> float:
        """The least t with which the fraction is known well enough. Raises :class:`InputError` if it would take too much."""
        deviation = self.session.noise(1.0)
        if str(self.session.terms.unit) == "record":
            if records is None:
                raise InputError("adaptive clipping of records needs their public number in all: give records")
            # As planned with one record for each party.
            deviation *= self.session.terms.parties / records
        t = deviation / (2 * MOST_ERROR)
        if t * t > _MOST_PART:
            best = deviation / (2 * math.sqrt(_MOST_PART))
            raise InputError(
                f"adaptive clipping would follow a fraction with a standard deviation of {best:.2g}, above {MOST_ERROR:g}: "
                "leave adaptive out, protect records, or plan more parties or fewer rounds"
            )
        return t


def _by_party(given: Sequence[Any] | Mapping[PartyId, Any]) -> dict[PartyId, Any]:
    listed = given if isinstance(given, Mapping) else dict(enumerate(given))
    return {party: one for party, one in listed.items() if one is not None}
