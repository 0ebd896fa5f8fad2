"""Averages of models over a session: each round moves the shared public model, at one site or at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from numpy.typing import ArrayLike

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.party import PartyId
from quietmean.learning.shared import SharedModel
from quietmean.learning.sites import FitSite, KeptState, parties_of, site_of
from quietmean.protocols.target import colluding_count
from quietmean.sessions import RoundMean
from quietmean.studies.agreement.session_terms import RoundsKeywords

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
    ``store``.

    ``site``, a :class:`quietmean.Site`: this party's part between machines, each of which makes the same call. Then the roster
    says how many ``parties`` there are, ``own_records`` how many this party has where records are protected, and what is averaged
    is kept after each round, so that the same program goes on after a crash. Use it in a ``with`` statement, whose normal end is
    the end of this party's part. ``purpose``, plain data: what else all parties have to do alike, such as local steps;
    ``name``: of this fit, and of its files.

    Raises :class:`InputError` for a model without arrays, with statistics of BatchNorm, and for adaptive clipping whose fraction
    would have a standard deviation above 0.1.
    """

    @python_call
    def __init__(
        self,
        model: Any,
        *,
        parties: int | None = None,
        clip: float = 1.0,
        adaptive: bool = False,
        quantile: float = 0.5,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        decay: Any = 0.0,
        records: int | None = None,
        weights: ArrayLike | None = None,
        store: str | Path | None = None,
        site: FitSite | None = None,
        own_records: int | None = None,
        purpose: Mapping[str, Any] | None = None,
        name: str = "model-averaging",
        **terms: Unpack[RoundsKeywords],
    ) -> None:
        moved = {"clip": clip, "learning_rate": learning_rate, "momentum": momentum, "quantile": quantile, "decay": decay}
        self._shared = SharedModel(model, **moved)
        self._site = site_of(site)
        count = parties_of(self._site, parties)
        fields: dict[str, Any] = {
            **terms,
            "dimension": self._shared.dimension + adaptive,
            "colluding": colluding_count(count, terms.get("colluding", 0.1)),
            "options": dict(terms.get("options") or {}),
            **self._site.agreed(name),
        }
        fields["purpose"] = {
            "kind": "model-averaging",
            **self._shared.describe(),
            **({"adaptive": True, "records": records} if adaptive else {}),
            **(purpose or {}),
        }
        self.session = self._site.rounds(fields, count, own_records, weights=weights, store=store)
        if adaptive:
            self._shared = SharedModel(model, indicator=self._weight_of_indicator(records), **moved)
        self.last: RoundMean[Any] | None = None
        self._kept = KeptState(self._shared, self._site.keeps(fields), self.session.terms.rounds)
        self._asked = fields
        self._resumed = False

    def __enter__(self) -> Self:
        self._resume()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.session.__exit__(kind, error, trace)

    def _resume(self) -> None:
        if not self._resumed:
            self.session.__enter__()
            self._kept.resume(self.session)
            self._resumed = True

    @property
    def contract(self) -> Any:
        """What this party says yes to, at a site. Raises :class:`InputError` where all parties are in one process."""
        return self._site.contract(self._asked)

    @property
    def all_here(self) -> bool:
        """Whether all parties are in this process."""
        return self._site.members is None

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
        """The released part of the norms of the last round that lay within the bound, with adaptive clipping."""
        return self._shared.within

    @property
    def epsilon(self) -> float:
        """What the rounds so far cost at most."""
        return self.session.epsilon

    @property
    def over(self) -> bool:
        """Whether no round is left."""
        self._resume()
        return self._kept.over(self.session)

    @python_call
    def average(self, models: Any, *, leaves: Mapping[PartyId, int] | None = None) -> Any:
        """One round: the public model moves by the mean of the parties' differences from it. The new public model.

        ``models``: what each party trained, in order, None for who misses this round; or by party; at a site the one model that
        this party trained. Raises :class:`InputError`, and nothing is spent, for a model of another structure;
        :class:`ProtocolFailure` for a round without a result.
        """
        if str(self.session.terms.unit) != "party":
            raise InputError("models are averaged where whole parties are protected. Hand gradients of records to descend.")
        self._resume()
        trained = self._by_party(models)
        vectors = {party: self._shared.difference(model, f"the model of party {party}") for party, model in trained.items()}
        return self._moved(vectors, leaves)

    @python_call
    def descend(self, gradients: Any, *, leaves: Mapping[PartyId, int] | None = None) -> Any:
        """One round where records are protected: a step against the mean gradient of all records. The new public model.

        ``gradients``: of each party's records at the public :attr:`model`, each array with one axis more in front, of size N.
        Raises as :meth:`average` does.
        """
        if str(self.session.terms.unit) != "record":
            raise InputError(
                "this session protects whole parties, and a step per record needs unit='record'. Hand whole models to average."
            )
        self._resume()
        held = self._by_party(gradients)
        vectors = {party: self._shared.steps(gradient, f"the gradients of party {party}") for party, gradient in held.items()}
        return self._moved(vectors, leaves)

    def _moved(self, vectors: Mapping[PartyId, Array], leaves: Mapping[PartyId, int] | None) -> Any:
        self.last = self._kept.move(lambda: self.session.mean(vectors, clip=1.0, leaves=leaves))
        return self._shared.model

    def _weight_of_indicator(self, records: int | None) -> float:
        """The least t with which the fraction is known well enough. Raises :class:`InputError` if it would take too much."""
        deviation = self.session.terms.noise(1.0)
        if str(self.session.terms.unit) == "record":
            if records is None:
                raise InputError("adaptive clipping of records needs their public number in all. Give records.")
            # As planned with one record for each party.
            deviation *= self.session.terms.parties / records
        t = deviation / (2 * MOST_ERROR)
        if t * t > _MOST_PART:
            best = deviation / (2 * math.sqrt(_MOST_PART))
            raise InputError(
                f"adaptive clipping would follow a fraction with a standard deviation of {best:.2g}, above {MOST_ERROR:g}. "
                "Leave adaptive out, protect records, or plan more parties or fewer rounds."
            )
        return t

    def _by_party(self, values: Any) -> dict[PartyId, Any]:
        if not self.all_here:
            (own,) = self._site.here(self.session.terms.parties)
            return {own: values}
        listed = values if isinstance(values, Mapping) else dict(enumerate(values))
        return {party: model for party, model in listed.items() if model is not None}
