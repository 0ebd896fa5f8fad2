"""Averages of models over a session: clipping, adaptive clipping and momentum.

Each party trains from the public model and hands in its own; the difference is shortened to an L2 norm of C at most, and the mean
of the differences is released with noise (McMahan, Ramage, Talwar and Zhang 2018, without their server). Where records are
protected, the gradient of each record at the public model is shortened instead (Abadi et al. 2016).

With adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy 2021) one coordinate more says whether the difference is within C,
and C follows a quantile of the norms. Both are one vector in the unit ball: (a u / C, t (2 b - 1)) with a^2 + t^2 = 1, so
nothing changes in the budget; the noise on u is 1 / a times as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietmean.core.errors import InputError
from quietmean.core.keywords import refuses_unknown_keywords
from quietmean.core.party import PartyId, Vector
from quietmean.learning.trees import Tree
from quietmean.planning.automatic import AUTO
from quietmean.sessions import Engine, RoundResult, Session
from quietmean.sessions.clipping import norms, shortened

# The standard deviation that the fraction of differences within C may have.
MOST_ERROR = 0.1
# What adaptive clipping may take of the squared length of a vector.
_MOST_PART = 0.1
# How fast C moves, Andrew et al. section 3.
_RATE = 0.2


class ModelAveraging:
    """``model``, public, with which everybody starts: nested dicts, lists and tuples of arrays, or a ``state_dict`` of PyTorch.

    ``clip``: the largest L2 norm of a difference (of a record's gradient where ``unit`` is "record"), in the units of the model;
    with ``adaptive`` where it begins, and ``quantile`` the part of all norms that shall lie within it. ``learning_rate`` and
    ``momentum`` are applied to what was released. Everything else as in :class:`~quietmean.sessions.Session`. After a crash:
    the last :attr:`model` and :attr:`clip`, and the same ``store``. Raises :class:`InputError` for a model without arrays, with
    statistics of BatchNorm, and for adaptive clipping whose fraction would have a standard deviation above 0.1.
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
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise InputError(f"learning_rate is {learning_rate:g}: choose a finite number > 0")
        for name, number in (("momentum", momentum), ("quantile", quantile)):
            if not 0 <= number < 1:
                raise InputError(f"{name} is {number:g}: choose 0 <= {name} < 1")
        self._tree = Tree(model)
        self._vector = self._tree.flat(model)
        self._velocity = np.zeros_like(self._vector)
        self._rate, self._momentum, self._quantile = learning_rate, momentum, quantile
        self.session = Session(
            parties=parties,
            dimension=self._tree.size + adaptive,
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
        if not (math.isfinite(clip) and clip > 0):
            raise InputError(f"clip is {clip:g}: choose a finite number > 0, the largest L2 norm of a difference")
        self.clip = float(clip)
        self._indicator = self._weight_of_indicator(records) if adaptive else 0.0
        self.last: RoundResult | None = None
        self.within: float | None = None

    @property
    def model(self) -> Any:
        """The public model as it is now, in the structure, shapes and types of the first."""
        return self._tree.filled(self._vector)

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
            party: (self._tree.flat(model, f"the model of party {party}") - self._vector)[None]
            for party, model in _by_party(models).items()
        }
        return self._moved({party: self._encoded(rows)[0] for party, rows in given.items()}, 1.0, leaves)

    @refuses_unknown_keywords
    def descend(self, gradients: Sequence[Any] | Mapping[PartyId, Any], *, leaves: Mapping[PartyId, int] | None = None) -> Any:
        """One round where records are protected: a step against the mean gradient of all records. The new public model.

        ``gradients``: of each party's records at the public :attr:`model`, each array with one axis more in front, of size N.
        Raises as :meth:`average` does.
        """
        if str(self.session.terms.unit) != "record":
            raise InputError("gradients of records are for unit='record': hand whole models to average")
        given = {
            party: self._encoded(self._tree.rows(one, f"the gradients of party {party}"))
            for party, one in _by_party(gradients).items()
        }
        return self._moved(given, -1.0, leaves)

    def _encoded(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows (N, d) in the unit ball, with the coordinate for adaptive clipping if there is one."""
        inside = shortened(rows, self.clip)
        t = self._indicator
        if not t:
            return inside
        told = np.where(norms(rows) <= self.clip, t, -t)
        return np.hstack([inside * math.sqrt(1 - t * t), told[:, None]])

    def _moved(self, given: Mapping[PartyId, NDArray[np.float64]], sign: float, leaves: Mapping[PartyId, int] | None) -> Any:
        result = self.session.mean(given, clip=1.0, leaves=leaves)
        self.last, mean, t = result, result.mean, self._indicator
        step: Vector = mean[: self._vector.size] * self.clip / math.sqrt(1 - t * t)
        if t:
            self.within = float(np.clip((mean[-1] / t + 1) / 2, 0.0, 1.0))
            self.clip *= math.exp(-_RATE * (self.within - self._quantile))
        self._velocity = self._momentum * self._velocity + sign * step
        self._vector = self._vector + self._rate * self._velocity
        return self.model

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
