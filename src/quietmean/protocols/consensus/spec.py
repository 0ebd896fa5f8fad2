"""Parameters of average consensus by PDMM, ADMM or anything between, with subspace perturbation and quantised differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.schema import AUTO, OPEN, is_kind, parameter
from quietmean.graphs import Edges, ExecutionTrace, Schedule, is_connected
from quietmean.protocols.discrete import DiscreteNoise
from quietmean.protocols.fields import GraphParameters, never_written

LOCAL_NOISE = ("none", "gaussian", "uniform", "laplace")
# Which of its edges have to be open before a party sends anything that depends on its value.
EACH, ALL = "each", "all"
MOST_BITS = 16


@dataclass(frozen=True)
class Quantisation:
    """Differences in ``bits`` bits each, cells of width max(gamma^t delta_0, delta_min) in iteration t = 1, 2, ...

    ``two_step``: differences over two iterations instead of one, for theta = 0. ``dither_seed``: any number; the dither is public
    and takes part in no protection. ``send_overloads``: what does not fit into the bits follows in full, so that no error is ever
    larger than half a cell; else it is clipped.
    """

    bits: int
    gamma: float
    delta_0: float
    delta_min: float = 0.0
    two_step: bool = False
    dither_seed: int = 0
    send_overloads: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_BITS:
            raise InputError(f"bits is {self.bits}. Choose 1..{MOST_BITS}.")
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma:g}. Choose 0 < gamma <= 1.")
        if not (np.isfinite(self.delta_0) and self.delta_0 > 0):
            raise InputError(f"delta_0 is {self.delta_0:g}. Choose a finite number > 0.")
        if not (np.isfinite(self.delta_min) and 0 <= self.delta_min <= self.delta_0):
            raise InputError(f"delta_min is {self.delta_min:g}. Choose 0 <= delta_min <= delta_0 = {self.delta_0:g}.")

    def width(self, iteration: int) -> float:
        """The cell width of ``iteration`` = 1, 2, ..."""
        return float(max(self.gamma**iteration * self.delta_0, self.delta_min))

    @property
    def largest_input(self) -> float:
        """What the quantiser takes without overload, in cell widths: dither of half a cell included."""
        return 2.0 ** (self.bits - 1) - 0.5

    def describe(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _read_sigma_z(raw: Any) -> float | Array:
    if is_kind(raw, float):
        return float(raw)
    if not isinstance(raw, list):
        raise InputError(f"field 'sigma_z' is {raw!r}. Give a number.")
    pairs = convert(raw, list[tuple[float, float]], partial(unfit_field, "sigma_z"))
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


def _one_or_lists(sigma_z: float | Array) -> Any:
    """What a file says: one number where all edges have the same."""
    if isinstance(sigma_z, float | int):
        return float(sigma_z)
    same = bool(sigma_z.size) and bool((sigma_z == sigma_z[0, 0]).all())
    return float(sigma_z[0, 0]) if same else sigma_z.tolist()


def _has_local_noise(parameters: ConsensusParameters) -> bool:
    return parameters.local_noise != "none"


def _begins_with_all(parameters: ConsensusParameters) -> bool:
    return parameters.open_edges == ALL


# Of what sends differences as they are.
UNQUANTISED: Mapping[str, Any] = {
    "bits": None, "gamma": OPEN, "delta_0": OPEN, "delta_min": 0.0, "two_step": OPEN, "dither_seed": 0, "value_sd": 1.0,
    "send_overloads": False,
}  # fmt: skip


def _is_quantised(parameters: ConsensusParameters) -> bool:
    return parameters.bits is not None


def _sends_overloads(parameters: ConsensusParameters) -> bool:
    return parameters.send_overloads


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ConsensusParameters(GraphParameters, DiscreteNoise):
    """``edges`` (m, 2) are those of a connected graph of ``parties``. ``theta`` = 0 is PDMM, 1/2 ADMM; ``c`` > 0 its step.

    ``sigma_z``, shape (m, 2): standard deviations of z^(0) on every edge, that of the smaller party first; one number means
    all. ``local_noise`` of standard deviation ``sigma_local`` is added to every value and stays in the result. ``iterations``
    counts the differences that every edge carries each way. With ``open_edges`` "each" a party goes on without the edges whose
    first messages did not both arrive, and an edge over which nothing came through in either direction for ``patience`` rounds is
    given up. With "all" a party goes on with all of its edges or tells nothing of its value, and no edge is given up later. With
    ``bits`` differences are quantised (:class:`Quantisation`). ``graph`` and what belongs to it say how edges are made where none
    are given.

    With ``step`` values, their noise and z^(0) are whole multiples of it. What parties compute is a function of values minus
    z^(0), of the differences of z^(0) over edges, and of messages, whatever its rounding.
    """

    theta: float = parameter(
        help="averaging of the iteration: 0 is PDMM, 0.5 ADMM",
        option=True,
        required=False,
        at_least=0,
        below=1,
        remedy="choose 0 <= theta < 1 (0 is PDMM, 0.5 ADMM)",
    )
    c: float = parameter(
        help="step of the iteration",
        option=True,
        required=False,
        auto=True,
        above=0,
        remedy='choose a finite number > 0, or "auto"',
    )
    sigma_z: float | Array = parameter(
        help="standard deviation of the noise on the edges", option=True, flag=None, read=_read_sigma_z, write=_one_or_lists
    )
    iterations: int = parameter(
        help="how many differences every edge carries each way",
        option=True,
        required=False,
        at_least=1,
        at_most=100_000,
        remedy="choose 1..100000 exchanges",
    )
    mode: str = parameter("unicast", help="how differences are sent", option=True, choices=("unicast", "broadcast"))
    patience: int = parameter(
        3,
        help="rounds without a message after which an edge is given up",
        option=True,
        at_least=1,
        remedy="choose 1 silent round or more",
    )
    open_edges: str = parameter(
        help="edges that have to be open before a party tells anything of its value: by default all, or each by itself",
        option=True,
        required=False,
        choices=(EACH, ALL),
        written=_begins_with_all,
    )
    local_noise: str = parameter(
        help="kind of noise on every value", option=True, flag=None, required=False, choices=LOCAL_NOISE, written=_has_local_noise
    )
    sigma_local: float = parameter(
        help="standard deviation of the noise on every value",
        option=True,
        flag=None,
        required=False,
        at_least=0,
        remedy="choose a finite number >= 0",
        written=_has_local_noise,
    )
    bits: int | None = parameter(
        None,
        help="bits of a quantised difference",
        option=True,
        auto=True,
        at_least=1,
        at_most=MOST_BITS,
        remedy=f"choose 1..{MOST_BITS}",
    )
    gamma: float = parameter(
        help="factor by which the cells of the quantiser shrink",
        option=True,
        required=False,
        above=0,
        at_most=1,
        remedy="choose 0 < gamma <= 1",
        written=_is_quantised,
    )
    delta_0: float = parameter(
        help="width of the first cell of the quantiser",
        option=True,
        required=False,
        above=0,
        remedy="choose a finite number > 0",
        written=_is_quantised,
    )
    delta_min: float = parameter(
        0.0,
        help="smallest width of a cell of the quantiser",
        option=True,
        at_least=0,
        remedy="choose 0 <= delta_min <= delta_0",
        written=_is_quantised,
    )
    two_step: bool = parameter(help="differences over two iterations", option=True, required=False, written=_is_quantised)
    dither_seed: int = parameter(0, help="number of the public dither", option=True, written=_is_quantised)
    send_overloads: bool = parameter(False, help="differences beyond the bits follow in full", written=_sends_overloads)
    value_sd: float = parameter(
        1.0,
        help="standard deviation of the values that a quantiser is made for",
        option=True,
        above=0,
        remedy="choose a finite number > 0",
        written=never_written,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.complete:
            return
        deviations = self.deviations
        if len(deviations) != len(self.edges):
            pairs, edges = len(deviations), len(self.edges)
            raise InputError(f"sigma_z lists {pairs} pairs for {edges} edges. Give one pair per edge, in rising order of edges.")
        if deviations.ndim != 2 or deviations.shape[1] != 2 or not (np.isfinite(deviations).all() and (deviations >= 0).all()):
            raise InputError("sigma_z is not a standard deviation. Give a finite number >= 0, or two of them for each edge.")
        if (self.local_noise == "none") != (self.sigma_local == 0):
            raise InputError(f"local_noise {self.local_noise!r} with sigma_local {self.sigma_local:g}. Give both or none.")
        if self.step and self.local_noise not in ("none", "gaussian"):
            raise InputError(f"local_noise {self.local_noise!r} is not on a grid. Choose gaussian, or leave grid out.")
        if not is_connected(self.edges, self.parties):
            raise InputError(f"the graph of {len(self.edges)} edges does not connect all {self.parties} parties. Add edges.")
        if self.open_edges == ALL and not self.keeps_edges:
            raise InputError(
                f"open_edges is all and patience is {self.patience}: an edge that is given up later hides nothing. Take a "
                f"patience above the {self.iterations} iterations, or {EACH} as open_edges."
            )
        if self.broadcast and self.quantisation is not None and self.quantisation.two_step:
            raise InputError(
                "two_step has no use with broadcast, whose differences vanish for every theta. Leave one of them out."
            )

    @property
    def complete(self) -> bool:
        """Is everything known that the iteration needs?"""
        needed = (self.edges, self.parties, self.theta, self.c, self.sigma_z, self.iterations, self.local_noise, self.sigma_local)
        return not any(value is OPEN or value is AUTO for value in (*needed, self.bits))

    @property
    def own_deviation(self) -> float:
        return self.sigma_local

    @property
    def keeps_edges(self) -> bool:
        """Say if all edges that were opened stay."""
        return self.patience > self.iterations

    @property
    def broadcast(self) -> bool:
        return self.mode == "broadcast"

    @cached_property
    def deviations(self) -> Array:
        """Standard deviations of z^(0) at both ends of every edge, shape (m, 2)."""
        return np.full((len(self.edges), 2), self.sigma_z) if isinstance(self.sigma_z, float | int) else self.sigma_z

    @cached_property
    def quantisation(self) -> Quantisation | None:
        """The quantiser of differences, None where they are sent as they are."""
        if self.bits is None:
            return None
        return Quantisation(
            self.bits, self.gamma, self.delta_0, self.delta_min, self.two_step, self.dither_seed, self.send_overloads
        )

    def quantised(self, settings: Quantisation | None) -> Self:
        """Return these parameters with another quantiser, or none."""
        if settings is None:
            return replace(self, **UNQUANTISED)
        return replace(self, **settings.describe())

    @property
    def rounds(self) -> int:
        """The exchange of z^(0), then one round for each iteration."""
        return self.iterations + 1

    @cached_property
    def links(self) -> DirectedEdges:
        return DirectedEdges.of(self.edges, self.parties, self.deviations)


@dataclass(frozen=True, eq=False)
class DirectedEdges:
    """Both directions of every edge, ordered by sender, then receiver: 2m of them, all arrays but ``first`` of shape (2m,).

    ``sign`` is B: +1 at the smaller end of an edge, -1 at the larger. ``reverse`` is the index of the other direction;
    ``sigma`` the standard deviation of z^(0) that the sender holds.
    """

    sender: Ints
    receiver: Ints
    sign: Array
    reverse: Ints
    sigma: Array
    first: Ints  # (n + 1,): the links of party i are first[i] .. first[i + 1] - 1

    @classmethod
    def of(cls, edges: Edges, parties: int, sigma_z: Array) -> DirectedEdges:
        """The links of edges (m, 2). ``sigma_z`` (m, 2): standard deviations of z^(0) at the smaller and the larger end."""
        sender = np.concatenate([edges[:, 0], edges[:, 1]])
        receiver = np.concatenate([edges[:, 1], edges[:, 0]])
        order = np.lexsort((receiver, sender))
        rank_of = np.argsort(order)
        other = np.concatenate([np.arange(len(edges)) + len(edges), np.arange(len(edges))])
        sign = np.repeat([1.0, -1.0], len(edges))
        first = np.concatenate([[0], np.cumsum(np.bincount(sender, minlength=parties))])
        sigma = np.concatenate([sigma_z[:, 0], sigma_z[:, 1]])
        return cls(sender[order], receiver[order], sign[order], rank_of[other[order]], sigma[order], first)

    def __len__(self) -> int:
        return len(self.sender)

    @property
    def degree(self) -> Ints:
        """How many links start at each party, shape (n,)."""
        degree: Ints = np.diff(self.first)
        return degree

    @property
    def slot(self) -> Ints:
        """The place of a link in those of its sender, shape (2m,)."""
        slot: Ints = np.arange(len(self)) - self.first[self.sender]
        return slot


@dataclass(frozen=True, eq=False)
class Deliveries:
    """All (T, 2m), rounds by links: did a message arrive, does its sender know that, and was it handed to its receiver at all?

    ``arrived`` is true wherever ``acknowledged`` is, and ``handed`` wherever ``arrived`` is. ``all_or_none``: does a party use
    either all of its links or none of them?
    """

    links: DirectedEdges
    arrived: Mask
    acknowledged: Mask
    handed: Mask
    all_or_none: bool = False

    @classmethod
    def of(cls, parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Deliveries:
        links = parameters.links
        tables = (*trace.deliveries(schedule), trace.handed(schedule))
        arrived, acknowledged, handed = (table[:, links.sender, links.slot] for table in tables)
        return cls(links, arrived, acknowledged, handed, parameters.open_edges == ALL)

    @classmethod
    def complete(cls, parameters: ConsensusParameters) -> Deliveries:
        everything: Mask = np.ones((parameters.rounds, len(parameters.links)), dtype=np.bool_)
        return cls(parameters.links, everything, everything, everything)

    @property
    def all_known(self) -> bool:
        """Did everything arrive, and do all senders know?"""
        return bool(self.acknowledged.all())

    def opened(self) -> Mask:
        """Does the sender use the link at first? Shape (2m,).

        It does if it received the other end's message and knows that its own arrived, of this link or of all its links.
        """
        return self._exchanged_first() & self.tells()[self.links.sender]

    def tells(self) -> Mask:
        """May the party send what depends on its value, and has it a result? Shape (n,)."""
        parties = len(self.links.first) - 1
        if not self.all_or_none:
            return np.ones(parties, dtype=np.bool_)
        unopened = np.bincount(self.links.sender[~self._exchanged_first()], minlength=parties)
        tells: Mask = unopened == 0
        return tells

    def _exchanged_first(self) -> Mask:
        both: Mask = self.acknowledged[0] & self.arrived[0][self.links.reverse]
        return both

    def exchanged(self, iteration: int, active: Mask) -> tuple[Mask, Mask]:
        """Which messages are delivered and received, both (2m,), if the links ``active`` (2m,) are used.

        For link (i, j): does i know that its message reached j, and did it receive the message of j? A party that does not use a
        link refuses messages over it.
        """
        both = active & active[self.links.reverse]
        return self.acknowledged[iteration] & both, self.arrived[iteration][self.links.reverse] & both


def still_in_use(active: Mask, silent: Ints, lively: Mask, patience: int) -> tuple[Mask, Ints]:
    """The links in use after a round, and for how many rounds each has been silent; all arrays (2m,).

    ``lively``: links with a message in one direction or both in that round.
    """
    silent = np.where(lively, 0, silent + 1)
    return active & (silent < patience), silent


def edges_in_use(parameters: ConsensusParameters, schedule: Schedule, trace: ExecutionTrace) -> Mask:
    """The edges that both ends use after the last round, shape (m,), in the order of ``parameters.edges``."""
    links, deliveries = parameters.links, Deliveries.of(parameters, schedule, trace)
    active, silent = deliveries.opened(), np.zeros(len(links), dtype=np.int64)
    for iteration in range(1, parameters.rounds):
        delivered, received = deliveries.exchanged(iteration, active)
        active, silent = still_in_use(active, silent, delivered | received, parameters.patience)
    forward: Mask = (active & active[links.reverse])[links.sign > 0]
    return forward
