"""Parameters of average consensus by PDMM, ADMM or anything between, with subspace perturbation and quantised differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.graphs.undirected import Edges, is_connected

Array = NDArray[np.float64]

LOCAL_NOISE = ("none", "gaussian", "uniform", "laplace")
_MOST_BITS = 16


@dataclass(frozen=True)
class Quantisation:
    """Differences in ``bits`` bits each, cells of width max(gamma^t delta_0, delta_min) in iteration t = 1, 2, ...

    ``two_step``: differences over two iterations instead of one, for theta = 0. ``dither_seed``: any number; the dither is public
    and takes part in no protection.
    """

    bits: int
    gamma: float
    delta_0: float
    delta_min: float = 0.0
    two_step: bool = False
    dither_seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= _MOST_BITS:
            raise InputError(f"bits is {self.bits}: choose 1..{_MOST_BITS}")
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma:g}: the cells shrink by a factor 0 < gamma <= 1")
        if not (np.isfinite(self.delta_0) and self.delta_0 > 0):
            raise InputError(f"delta_0 is {self.delta_0:g}: the first cell width is a finite number > 0")
        if not (np.isfinite(self.delta_min) and 0 <= self.delta_min <= self.delta_0):
            raise InputError(f"delta_min is {self.delta_min:g}: choose 0 <= delta_min <= delta_0 = {self.delta_0:g}")

    def width(self, iteration: int) -> float:
        """The cell width of ``iteration`` = 1, 2, ..."""
        return float(max(self.gamma**iteration * self.delta_0, self.delta_min))

    @property
    def largest_input(self) -> float:
        """What the quantiser takes without overload, in cell widths: dither of half a cell included."""
        return 2.0 ** (self.bits - 1) - 0.5

    def describe(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False)
class ConsensusParameters:
    """``edges`` (m, 2) are those of a connected graph. ``theta`` = 0 is PDMM, 1/2 ADMM; ``c`` > 0 its step.

    ``sigma_z``, shape (m, 2): standard deviations of z^(0) on every edge, that of the smaller party first. ``local_noise`` of
    standard deviation ``sigma_local`` is added to every value and stays in the result. ``iterations``: how many differences every
    edge carries each way. An edge over which nothing came through in either direction for ``patience`` rounds is given up.
    """

    edges: Edges
    parties: int
    theta: float
    c: float
    sigma_z: Array
    iterations: int
    broadcast: bool = False
    quantisation: Quantisation | None = None
    local_noise: str = "none"
    sigma_local: float = 0.0
    patience: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.theta < 1:
            raise InputError(f"theta is {self.theta:g}: choose 0 <= theta < 1 (0 is PDMM, 0.5 ADMM)")
        if not (np.isfinite(self.c) and self.c > 0):
            raise InputError(f'c is {self.c:g}: choose a finite number > 0, or "auto"')
        if self.iterations < 1:
            raise InputError(f"iterations is {self.iterations}: at least 1 exchange is needed")
        if self.patience < 1:
            raise InputError(f"patience is {self.patience}: an edge can be given up after 1 silent round at the earliest")
        if self.sigma_z.shape != (len(self.edges), 2) or not (np.isfinite(self.sigma_z).all() and (self.sigma_z >= 0).all()):
            raise InputError("sigma_z must be a finite number >= 0, or two of them for each edge")
        if self.local_noise not in LOCAL_NOISE:
            raise InputError(f"local_noise {self.local_noise!r} is unknown: choose one of {', '.join(LOCAL_NOISE)}")
        if not (np.isfinite(self.sigma_local) and self.sigma_local >= 0):
            raise InputError(f"sigma_local is {self.sigma_local:g}: a standard deviation is a finite number >= 0")
        if (self.local_noise == "none") != (self.sigma_local == 0):
            raise InputError(f"local_noise {self.local_noise!r} with sigma_local {self.sigma_local:g}: give both or none")
        if not is_connected(self.edges, self.parties):
            raise InputError(f"the graph of {len(self.edges)} edges does not connect all {self.parties} parties: add edges")
        if self.broadcast and self.quantisation is not None and self.quantisation.two_step:
            raise InputError("two_step with broadcast has no use: the differences of a broadcast vanish for every theta")

    @property
    def rounds(self) -> int:
        """The exchange of z^(0), then one round for each iteration."""
        return self.iterations + 1

    @cached_property
    def links(self) -> Links:
        return Links.of(self.edges, self.parties, self.sigma_z)


@dataclass(frozen=True, eq=False)
class Links:
    """Both directions of every edge, ordered by sender, then receiver: 2m of them.

    ``sign`` is B: +1 at the smaller end of an edge, -1 at the larger. ``reverse`` is the index of the other direction;
    ``sigma`` the standard deviation of z^(0) that the sender holds.
    """

    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    sign: Array
    reverse: NDArray[np.int64]
    sigma: Array
    first: NDArray[np.int64]  # (n + 1,): the links of party i are first[i] .. first[i + 1] - 1

    @classmethod
    def of(cls, edges: Edges, parties: int, sigma_z: Array) -> Links:
        sender = np.concatenate([edges[:, 0], edges[:, 1]])
        receiver = np.concatenate([edges[:, 1], edges[:, 0]])
        order = np.lexsort((receiver, sender))
        place = np.argsort(order)
        other = np.concatenate([np.arange(len(edges)) + len(edges), np.arange(len(edges))])
        sign = np.repeat([1.0, -1.0], len(edges))
        first = np.concatenate([[0], np.cumsum(np.bincount(sender, minlength=parties))])
        sigma = np.concatenate([sigma_z[:, 0], sigma_z[:, 1]])
        return cls(sender[order], receiver[order], sign[order], place[other[order]], sigma[order], first)

    def __len__(self) -> int:
        return len(self.sender)

    @property
    def degree(self) -> NDArray[np.int64]:
        """Shape (n,)."""
        degree: NDArray[np.int64] = np.diff(self.first)
        return degree

    @property
    def slot(self) -> NDArray[np.int64]:
        """Shape (2m,): the place of a link among those of its sender."""
        slot: NDArray[np.int64] = np.arange(len(self)) - self.first[self.sender]
        return slot
