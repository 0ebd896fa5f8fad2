"""Clusters by Lloyd's rounds in a session."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClusterMixin
from sklearn.utils import check_random_state

from quietmean.core.arrays import Array
from quietmean.core.domain import PrivacyUnit
from quietmean.learning.estimators.base import InvalidInput, Private, estimator, filled, public
from quietmean.learning.estimators.centres import Centres, nearest
from quietmean.learning.estimators.certificate import FitCertificate
from quietmean.learning.kept import KeptState
from quietmean.learning.sites import SiteRounds, clamped_note, parties_of, site_of
from quietmean.protocols.execution import Execution

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
            while not session.over:
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
        if self._open().over:
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
            raise InvalidInput("no session was begun: call partial_fit first")
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
        here, asked = site.members is not None, self._asked(limits, centres)
        records = len(rows[0]) if here and self.unit == "record" else None
        self._session: SiteRounds | None = site.rounds(asked, parties_of(site, None if here else len(rows)), records)
        self._centres = Centres(centres, limits)
        self._kept = KeptState(self._centres, site.keeps(asked))
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
                raise InvalidInput(f"init is {self.init!r}: choose 'spread', or give public centres")
            if self.random_state is None and site_of(self.site).members is not None:
                raise InvalidInput("random_state is None: each site would draw other centres, give a whole number")
            drawn = check_random_state(self.random_state).uniform(*limits.T, size=(_DRAWN * count, columns))
            return _apart(drawn, limits, count)
        try:
            centres = np.asarray(self.init, dtype=np.float64)
        except (TypeError, ValueError):
            centres = np.zeros(0)
        if centres.shape != (count, columns) or not np.isfinite(centres).all():
            raise InvalidInput(f"init must be {count} centres of {columns} finite numbers each")
        return centres

    def _round(self, rows: list[Array], limits: Array) -> None:
        session = self._open()
        by_party = session.terms.unit == PrivacyUnit.PARTY
        vectors = [self._centres.vectors(own, inside) for own, inside in zip(rows, filled(rows, limits), strict=True)]
        given = [vector.mean(axis=0) if by_party else vector for vector in vectors]
        mean = session.mean(dict(zip(site_of(self.site).here(session.terms.parties), given, strict=True)))
        self._kept.move(mean)
        self._executions.append(mean.execution)
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
