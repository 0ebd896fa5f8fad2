"""Clusters by Lloyd's rounds in a session: from records to vectors, and from their noisy means to the next centres."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils import check_random_state

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.learning.estimators.base import FitCertificate, InvalidInput, Private, estimator, filled, public
from quietmean.learning.sites import KeptState, SiteRounds, clamped_note, packed, parties_of, site_of, unpacked
from quietmean.protocols.execution import Execution
from quietmean.sessions import RoundMean

# A cluster whose count is not so many deviations of its noise stays where it is.
_LEAST_COUNT = 3.0


class Centres:
    """The centres of clusters after some rounds.

    ``places`` (k, d), within the public ``limits`` (d, 2), and what the last mean says of them: all public.

    ``counts`` (k,): noisy parts of all units; ``counts_error``, ``sum_error``: of the noise on them, and on each coordinate of
    the sums.
    """

    def __init__(self, places: Array, limits: Array) -> None:
        self.places, self._limits = places, limits
        self.round = 0
        self.counts = np.full(len(places), np.nan)
        self.counts_error = self.sum_error = math.nan
        self._middle = limits.mean(axis=1)
        # A place within the bounds has this distance from their middle at most.
        self._reach = float(np.linalg.norm(limits[:, 1] - self._middle))
        # The part of the unit length that the 1 has: about where both make the same error in a centre.
        self._one = math.sqrt(1 / (1 + 2 * math.sqrt(len(limits))))
        self._place = math.sqrt(1 - self._one * self._one)

    @property
    def errors(self) -> Array:
        """Standard errors of the noise of the last round on each coordinate of the places, (k, d); NaN where one did not move."""
        certain = self.counts > _LEAST_COUNT * self.counts_error
        counts = np.where(certain, self.counts, np.nan)[:, None]
        errors: Array = np.hypot(self.sum_error, self.counts_error * (self.places - self._middle)) / counts
        return errors

    def vectors(self, rows: Array, inside: Array) -> Array:
        """Return the vectors (N, k (1 + d)) of records (N, d), which are ``inside`` the limits: a 1 and the place, in the
        nearest cluster."""
        count, columns = self.places.shape
        vectors = np.zeros((len(inside), count, 1 + columns))
        at = (np.arange(len(inside)), nearest(inside, self.places))
        vectors[*at, 0] = self._one
        vectors[*at, 1:] = self._place * (inside - self._middle) / self._reach
        # A row with a missing value is in no cluster.
        vectors[np.isnan(rows).any(axis=1)] = 0.0
        return vectors.reshape(len(inside), count * (1 + columns))

    def move(self, mean: RoundMean[Any]) -> None:
        """Move the centres to the ratios of noisy sums and counts."""
        scale, noisy = self._reach / self._place, mean.mean.reshape(len(self.places), -1)
        self.counts = noisy[:, 0] / self._one
        self.counts_error, self.sum_error = mean.standard_error / self._one, mean.standard_error * scale
        certain = self.counts > _LEAST_COUNT * self.counts_error
        moved = self._middle + noisy[:, 1:] * scale / np.where(certain, self.counts, 1.0)[:, None]
        self.places = np.where(certain[:, None], np.clip(moved, *self._limits.T), self.places)
        self.round = mean.round

    def save(self, path: str | Path) -> None:
        """Write the centres to a file, whole and durably. Raises :class:`InputError` where something else is there."""
        errors = [self.counts_error, self.sum_error]
        content = packed(places=self.places, counts=self.counts, errors=errors, round=self.round)
        Output(Path(path), "the centres", "name", own=lambda there: self._read(there) is not None).write(content)

    def load(self, path: str | Path) -> None:
        """Read centres from a file. Raises :class:`InputError` for a file of anything but so many centres."""
        state = self._read(Path(path).read_bytes())
        if state is None:
            raise InputError(f"{path} is not a file of {len(self.places)} centres. Give another, or move it away.")
        self.places, self.counts, (self.counts_error, self.sum_error), self.round = state

    def _read(self, content: bytes) -> tuple[Array, Array, Array, int] | None:
        try:
            places, counts, errors, number = unpacked(content, ("places", "counts", "errors", "round")).values()
            round_ = int(number)
        except (ValueError, TypeError):
            return None
        right = places.shape == self.places.shape and counts.shape == self.counts.shape and errors.shape == (2,)
        return (places, counts, errors, round_) if right and np.isfinite(places).all() and round_ >= 0 else None


def nearest(rows: Array, centres: Array) -> NDArray[np.intp]:
    """The place of the nearest centre of each row, shape (N,)."""
    distances = (centres**2).sum(axis=1) - 2 * rows @ centres.T
    labels: NDArray[np.intp] = distances.argmin(axis=1)
    return labels


# How many places are drawn for each centre to begin with.
_DRAWN = 20


@estimator
class KMeans(ClusterMixin, Private):  # type: ignore[misc]
    """k means: in each of ``rounds`` every record's place and a 1 are added up in its nearest cluster, and the centres move to
    the ratio of the noisy sums (Blum, Dwork, McSherry and Nissim 2005).

    Privacy unit: one record, or a whole party with ``unit="party"``, whose records' mean then counts once. Neighbouring relation:
    replacement of one unit; ``epsilon`` and ``delta`` are those of the fit, over all of its rounds.

    ``bounds``: public (low, high) of the columns, required. ``init``: public centres (k, d), or "spread" for places far from each
    other within the bounds, drawn with ``random_state``, which decides about nothing private. Everything else as in
    :class:`~quietmean.learning.estimators.base.Private`.

    Fitted: ``cluster_centers_`` (k, d), ``counts_`` (k,), noisy parts of all units, ``sum_standard_error_`` and
    ``counts_standard_error_``, of the noise on each coordinate of the sums over all units, in units of the columns, and on the
    counts, ``cluster_centers_standard_error_`` (k, d), of the noise of the last round on the centres (NaN for one that stayed
    where it was), ``n_iter_``, ``certificate_``, ``epsilon_``, ``delta_``. There are no ``labels_`` and no ``inertia_``: they
    would be of records. ``predict`` gives the labels where the records are.
    """

    n_clusters: int = 8
    rounds: int = 5
    init: str | ArrayLike = "spread"
    random_state: Any = None

    @public
    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """``rounds`` releases. ``X``: a list with the X of each party; or X (N, d) with ``groups`` (N,), a party's label for each
        row, or the parameter ``parties``; ``y`` is not used. Raises :class:`InputError`, a ValueError too, before anything is
        released, and :class:`ProtocolFailure` for a round without a result: the centres are those of the round before.
        """
        rows, limits = self._given(X, groups, reset=True)
        self._begin(rows, limits)
        with self._open() as session:
            while not self._kept.over(session):
                self._round(rows, limits)
        del self._session
        return self

    @public
    def partial_fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """One round of the session that the first call begins, with the data that are given. As :meth:`fit`; the parties stay.

        Raises :class:`InputError` once all ``rounds`` are over: their budget is spent.
        """
        first = getattr(self, "_session", None) is None
        rows, limits = self._given(X, groups, reset=first)
        if first:
            self._begin(rows, limits)
        self._round(rows, limits)
        if self._kept.over(self._open()):
            # Of a party between machines it ends for good.
            self._open().__exit__(None, None, None)
        return self

    @public
    def predict(self, X: Any) -> NDArray[np.intp]:
        """The number of the nearest centre for each row, shape (N,). Nothing is released."""
        return nearest(self._complete(X), self.cluster_centers_)

    @public
    def fit_predict(self, X: Any, y: Any = None, groups: Any = None) -> NDArray[np.intp]:
        """:meth:`fit` and then :meth:`predict` of one table X (N, d): the labels are not private, they stay with the rows."""
        labels: NDArray[np.intp] = self.fit(X, y, groups).predict(X)
        return labels

    def _given(self, X: Any, groups: Any, reset: bool) -> tuple[list[Array], Array]:
        rows, _ = self._held(X, None, groups, supervised=False, reset=reset)
        for name in ("n_clusters", "rounds"):
            self._whole(name)
        return rows, self._limits(self.bounds, rows[0].shape[1])

    def _open(self) -> SiteRounds:
        session: SiteRounds | None = getattr(self, "_session", None)
        if session is None:
            raise InvalidInput("no session was begun. Call partial_fit first.")
        return session

    def _asked(self, limits: Array, centres: Array) -> dict[str, Any]:
        """A session, by the fields of its file."""
        return {
            "dimension": int(self.n_clusters) * (1 + len(limits)),
            "rounds": int(self.rounds),
            **self._budget(),
            **site_of(self.site).agreed("kmeans"),
            "purpose": self._purpose(len(limits), {"centres": centres}),
        }

    def _contract(self, limits: Array) -> Any:
        return site_of(self.site).contract(self._asked(limits, self._start(limits)))

    def _begin(self, rows: list[Array], limits: Array) -> None:
        centres, site = self._start(limits), site_of(self.site)
        here, fields = site.members is not None, self._asked(limits, centres)
        records = len(rows[0]) if here and self.unit == "record" else None
        self._session: SiteRounds | None = site.rounds(fields, parties_of(site, None if here else len(rows)), records)
        self._centres = Centres(centres, limits)
        self._kept = KeptState(self._centres, site.keeps(fields), int(self.rounds))
        self.cluster_centers_ = centres
        self._executions: list[Execution] = []
        self._tell(clamped_note(rows, limits))
        self._session.__enter__()
        self._kept.resume(self._session)
        self._take_over()

    def _start(self, limits: Array) -> Array:
        """The centres to begin with, (k, d)."""
        count, columns = int(self.n_clusters), len(limits)
        if isinstance(self.init, str):
            if self.init != "spread":
                raise InvalidInput(f"init is {self.init!r}. Choose 'spread', or give public centres.")
            if self.random_state is None and site_of(self.site).members is not None:
                raise InvalidInput("random_state is None: each site would draw other centres. Give a whole number.")
            drawn = check_random_state(self.random_state).uniform(*limits.T, size=(_DRAWN * count, columns))
            return _apart(drawn, limits, count)
        try:
            centres = np.asarray(self.init, dtype=np.float64)
        except (TypeError, ValueError):
            centres = np.zeros(0)
        if centres.shape != (count, columns) or not np.isfinite(centres).all():
            raise InvalidInput(f"init has another shape. Give {count} centres of {columns} finite numbers each.")
        return centres

    def _round(self, rows: list[Array], limits: Array) -> None:
        session = self._open()
        by_party = session.terms.unit == PrivacyUnit.PARTY
        vectors = [self._centres.vectors(own, inside) for own, inside in zip(rows, filled(rows, limits), strict=True)]
        # A party without records that counts as a whole has no mean: nothing of it is in any cluster.
        party_vectors = [vector.sum(axis=0) / max(len(vector), 1) if by_party else vector for vector in vectors]
        given = dict(zip(site_of(self.site).here(session.terms.parties), party_vectors, strict=True))
        self._executions.append(self._kept.move(lambda: session.mean(given)).execution)
        self._take_over()

    def _take_over(self) -> None:
        """What was released so far; nothing before the first round."""
        centres, session = self._centres, self._open()
        if not session.begun:
            return
        self.cluster_centers_, self.counts_ = centres.places, centres.counts
        self.counts_standard_error_, self.sum_standard_error_ = centres.counts_error, centres.sum_error
        self.cluster_centers_standard_error_ = centres.errors
        self.n_iter_ = session.begun
        self._certify(FitCertificate.of_session(session, self._executions))


def _apart(drawn: Array, limits: Array, count: int) -> Array:
    """So many of the places that were drawn, each the farthest from those before and, half as important, from the bounds."""
    width = limits[:, 1] - limits[:, 0]
    scaled = (drawn - limits[:, 0]) / width
    edge = 2 * np.minimum(scaled, 1 - scaled).min(axis=1) * math.sqrt(len(width))
    chosen = [int(edge.argmax())]
    while len(chosen) < count:
        apart = np.linalg.norm(scaled[:, None] - scaled[chosen], axis=2).min(axis=1)
        chosen.append(int(np.minimum(apart, edge).argmax()))
    return drawn[chosen]
