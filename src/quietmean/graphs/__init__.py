"""Graphs: which party sends to which in each round, and static undirected ones. All from public seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.schema import require_known
from quietmean.graphs.schedule import (
    NOBODY,
    SCHEDULES,
    Flow,
    Schedule,
    arrivals,
    complete_pairs,
    everybody,
    make_schedule,
    share_flow,
)
from quietmean.randomness import BitStream, Seed

NEVER = 0


@dataclass(frozen=True, eq=False)
class ExecutionTrace:
    """How a schedule was carried out: ``online`` of shape (T + 1, n) for rounds 0..T; ``lost`` of shape (T, n, k_max).

    A message arrives if sender and receiver are online in its round and it is not marked lost. Every sender learns which of its
    messages arrived (IncA, section 2.4), some of them later than in their round. ``settled``, shape (M, 4), lists those as
    (round, sender, receiver, later round): the sender first had to assume that the message was lost and kept its share, and
    removed it at the end of the later round. A later round of 0 means that it never learnt, so that the share counts twice.
    Every party is online in round 0: a participant that never started is not a party.

    To be used and to be seen are different things. ``seen``, of shape (T, n, k_max), marks messages that were handed to their
    receiver though it did not use them: refused, withdrawn by their sender, or handed to a party that was silent. They change
    nothing that is computed, but their receiver knows them.

    ``unheard``: parties that were online in the last round and whose releases are in no sum: what they held then is lost.

    Raises :class:`InputError` if a party is offline in round 0, or for a later round in which the sender is offline.
    """

    online: Mask
    lost: Mask | None = None
    settled: Ints = field(default_factory=lambda: np.empty((0, 4), dtype=np.int64))
    seen: Mask | None = None
    unheard: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for round_, sender, receiver, later in self.settled.tolist():
            if not (0 < round_ < len(self.online) and 0 <= min(sender, receiver) <= max(sender, receiver) < self.online.shape[1]):
                raise InputError(f"settled message [{round_}, {sender}, {receiver}] is not in the schedule. Name one that is.")
            if later != NEVER and not (round_ < later < len(self.online) and self.online[later, sender]):
                raise InputError(
                    f"message [{round_}, {sender}, {receiver}] cannot be settled in round {later}. Name a later round in which "
                    "its sender is online."
                )
        if not self.online[0].all():
            absent = np.nonzero(~self.online[0])[0].tolist()
            raise InputError(f"parties {absent} are offline in round 0: who never started is not a party. Leave them out.")

    @classmethod
    def everyone(cls, rounds: int, parties: int) -> ExecutionTrace:
        """All parties online in all rounds, and no message lost."""
        return cls(np.ones((rounds + 1, parties), dtype=bool))

    @property
    def finished(self) -> Mask:
        """Who was online in the last round, and heard, shape (n,). The others have dropped out permanently."""
        last: Mask = self.online[-1]
        if self.unheard:
            last = last.copy()
            last[list(self.unheard)] = False
        return last

    def delivered(self, schedule: Schedule) -> Mask:
        """Did the message of this round, sender and neighbour slot arrive? Shape (T, n, k_max).

        Raises :class:`InputError` if the shapes do not fit the schedule.
        """
        self._check(schedule)
        arrived: Mask = np.not_equal(schedule.neighbours, NOBODY, order="C")
        if not self.online.all():
            _leave_out_absent(arrived.reshape(-1), schedule, self.online[1:].ravel())
        return arrived if self.lost is None else arrived & ~self.lost

    def arrivals(self, schedule: Schedule) -> Callable[[int, PartyId, PartyId], bool]:
        """Did the message of (round, sender, receiver) arrive?"""
        rounds, senders, slots = self.delivered(schedule).nonzero()
        receivers = schedule.neighbours[rounds, senders, slots]
        arrived = set(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))
        return lambda round_, sender, receiver: (round_, sender, receiver) in arrived

    def deliveries(self, schedule: Schedule) -> tuple[Mask, Mask]:
        """:meth:`delivered`, and the messages whose arrival their sender knew of when the round ended; both read only."""
        delivered, slots = self.delivered(schedule), self.settled_slots(schedule)
        acknowledged = delivered.copy() if slots else delivered
        for round_, sender, slot, _ in slots:
            acknowledged[round_ - 1, sender, slot] = False
        return delivered, acknowledged

    def handed(self, schedule: Schedule) -> Mask:
        """The messages that their receiver knows, whether or not it used them, shape (T, n, k_max)."""
        delivered = self.delivered(schedule)
        if self.seen is None:
            return delivered
        sent: Mask = (schedule.neighbours != NOBODY) & self.online[1:, :, None]
        return delivered | (self.seen & sent)

    def unused(self, schedule: Schedule) -> list[tuple[int, int, int]]:
        """The messages that were seen and not used, as (round, sender, receiver)."""
        rounds, senders, slots = np.nonzero(self.handed(schedule) & ~self.delivered(schedule))
        receivers = schedule.neighbours[rounds, senders, slots]
        return list(zip((rounds + 1).tolist(), senders.tolist(), receivers.tolist(), strict=True))

    def settled_slots(self, schedule: Schedule) -> list[tuple[int, int, int, int]]:
        """The place of each message in ``settled``, as (round, sender, neighbour slot, later round).

        Raises :class:`InputError` if one of them did not arrive.
        """
        if not len(self.settled):
            return []
        delivered, settled = self.delivered(schedule), []
        for round_, sender, receiver, later in self.settled.tolist():
            slots = np.nonzero(delivered[round_ - 1, sender] & (schedule.neighbours[round_ - 1, sender] == receiver))[0]
            if slots.size == 0:
                raise InputError(f"settled message [{round_}, {sender}, {receiver}] did not arrive. List only those that did.")
            settled.append((round_, sender, int(slots[0]), later))
        return settled

    def all_handed(self, schedule: Schedule) -> ExecutionTrace:
        """Return this trace with every sent message marked as seen: also lost ones reached their receivers."""
        return replace(self, seen=self.undelivered(schedule))

    def undelivered(self, schedule: Schedule) -> Mask:
        """The messages that did not arrive though their sender was online and may have sent them, shape (T, n, k_max)."""
        missing: Mask = (schedule.neighbours != NOBODY) & ~self.delivered(schedule) & self.online[1:, :, None]
        return missing

    def _check(self, schedule: Schedule) -> None:
        expected = (schedule.rounds + 1, schedule.parties)
        if self.online.shape != expected:
            raise InputError(
                f"online has {self.online.shape} rounds x parties, the schedule needs {expected}. Give one row per round 0..T."
            )
        for name, mask in (("lost", self.lost), ("seen", self.seen)):
            if mask is not None and mask.shape != schedule.neighbours.shape:
                raise InputError(
                    f"{name} has shape {mask.shape}, the schedule {schedule.neighbours.shape}. Give both the same shape."
                )


def _leave_out_absent(arrived: Mask, schedule: Schedule, present: Mask) -> None:
    """Clear in ``arrived``, (T n k_max,), what is sent by or to a party that is not ``present``, (T n,).

    With flat indices numpy is several times faster than with one for each axis.
    """
    # Message by message: where one party sends to all, nearly all slots of the others are empty.
    message = arrived.nonzero()[0]
    sender = message // max(schedule.neighbours.shape[2], 1)
    receiver = sender - sender % schedule.parties + schedule.neighbours.ravel()[message]
    arrived[message] = present[sender] & present[receiver]


def churn(
    seed: Seed, rounds: int, parties: int, permanent: float = 0.0, temporary: float = 0.0, within: int | None = None
) -> ExecutionTrace:
    """A random trace of dropouts.

    ``permanent`` is the fraction of parties (rounded down) that drop out permanently, each at a uniformly random round 1..T
    (IncA, section 5.2), or 1..``within`` where a run usually takes no more. ``temporary`` is the probability that a party is
    offline in a round 1..T-1, independently for each.
    Raises :class:`InputError` for a number outside [0, 1).
    """
    for name, fraction in (("permanent", permanent), ("temporary", temporary)):
        if not 0 <= fraction < 1:
            raise InputError(f"{name} dropouts of {fraction:g} are not a fraction. Choose 0 <= fraction < 1.")
    stream = BitStream(seed.derive("churn", rounds, parties))
    online = np.ones((rounds + 1, parties), dtype=bool)
    if temporary and rounds > 1:
        online[1:-1] = stream.uniform((rounds - 1) * parties).reshape(rounds - 1, parties) >= temporary
    leaving = stream.permutation(parties)[: int(permanent * parties + 1e-9)]
    for party, last in zip(leaving, stream.integers(within or rounds, len(leaving)), strict=True):
        online[last + 1 :, party] = False
    return ExecutionTrace(online)


__all__ = [
    "SCHEDULES",
    "ExecutionTrace",
    "Flow",
    "Schedule",
    "arrivals",
    "churn",
    "complete_pairs",
    "everybody",
    "make_schedule",
    "share_flow",
]


Edges = Ints

GRAPHS = ("geometric", "geometric-cube", "harary", "path", "ring", "star", "complete")
# If none of this many random graphs is connected, the radius is too small.
_MOST_DRAWS = 10_000
# The most parties of a geometric graph, of which all pairs are compared.
_MOST_IN_SPACE = 20_000


def make_graph(kind: str, parties: int, seed: Seed, *, radius: float | None = None, connectivity: int = 2) -> Edges:
    """The edges of a connected graph on parties 0..n-1, shape (m, 2).

    ``geometric`` and ``geometric-cube``: uniform points in the unit square or cube, joined up to ``radius`` (by default
    sqrt(2 ln n / n)), drawn again until connected. ``harary``: a ring with chords to the nearest,
    which has the fewest edges with which the graph stays connected if any ``connectivity - 1`` parties drop out. Raises
    :class:`InputError` for an unknown kind, too few parties, a connectivity below 1, and a radius with which no drawn graph is
    connected.
    """
    require_known("graph", kind, GRAPHS)
    if parties < 2:
        raise InputError(f"{parties} party has nobody to talk to. Give at least 2 parties.")
    numbers = np.arange(parties)
    match kind:
        case "path":
            return np.stack([numbers[:-1], numbers[1:]], axis=1)
        case "star":
            return np.stack([np.zeros(parties - 1, dtype=np.int64), numbers[1:]], axis=1)
        case "ring":
            return harary(parties, 2)
        case "complete":
            return harary(parties, parties - 1)
        case "harary":
            return harary(parties, connectivity)
    return _geometric(parties, seed.derive("graph", kind, parties), radius, 3 if kind == "geometric-cube" else 2)


def harary(parties: int, connectivity: int) -> Edges:
    """Harary's graph H(k, n): k-connected with ceil(k n / 2) edges (F. Harary, 1962); all edges once k is at least n - 1.

    ``connectivity`` is k; the result has shape (m, 2). Raises :class:`InputError` if it is below 1.
    """
    if connectivity < 1:
        raise InputError(f"connectivity is {connectivity}. Choose at least 1.")
    if connectivity >= parties - 1:
        return np.stack(np.triu_indices(parties, 1), axis=1).astype(np.int64)
    numbers = np.arange(parties)
    if connectivity == 1:
        return np.stack([numbers[:-1], numbers[1:]], axis=1)
    ends = [np.stack([numbers, (numbers + step) % parties], axis=1) for step in range(1, connectivity // 2 + 1)]
    if connectivity % 2:
        half = numbers[: (parties + 1) // 2]
        ends.append(np.stack([half, (half + parties // 2) % parties], axis=1))
    return normalised_edges(np.concatenate(ends).tolist(), parties)


def _geometric(parties: int, seed: Seed, radius: float | None, space: int) -> Edges:
    reach = math.sqrt(2 * math.log(parties) / parties) if radius is None else radius
    if not reach > 0:
        raise InputError(f"radius is {reach:g}. Choose a number > 0.")
    stream = BitStream(seed)
    if parties > _MOST_IN_SPACE:
        raise InputError(
            f"a geometric graph of {parties} parties compares all pairs of them. Choose another, or at most {_MOST_IN_SPACE}."
        )
    first, second = np.triu_indices(parties, 1)
    for _ in range(_MOST_DRAWS):
        points = stream.uniform(parties * space).reshape(parties, space)
        near = ((points[first] - points[second]) ** 2).sum(axis=1) <= reach**2
        edges = np.stack([first[near], second[near]], axis=1).astype(np.int64)
        if is_connected(edges, parties):
            return edges
    raise InputError(f"none of {_MOST_DRAWS} graphs with radius {reach:g} is connected. Choose a larger radius.")


def normalised_edges(pairs: Iterable[Iterable[int]], parties: int) -> Edges:
    """Edges in canonical form, shape (m, 2), duplicates merged. Raises :class:`InputError` for a pair that is not an edge."""
    listed = [tuple(pair) for pair in pairs]
    for pair in listed:
        if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= end < parties for end in pair):
            raise InputError(f"edge {list(pair)} is not valid. Name two different parties of 0..{parties - 1}.")
    unique = sorted({(min(pair), max(pair)) for pair in listed})
    return np.array(unique, dtype=np.int64).reshape(-1, 2)


def components(edges: Edges, parties: int) -> Ints:
    """The number of each party's connected component, shape (n,): that of its smallest member. Edges (m, 2)."""
    label = np.arange(parties)
    while len(edges):
        smallest = label.copy()
        np.minimum.at(smallest, edges[:, 0], label[edges[:, 1]])
        np.minimum.at(smallest, edges[:, 1], label[edges[:, 0]])
        # Following the labels halves the distances: a path takes a logarithmic number of passes.
        smallest = smallest[smallest]
        if (smallest == label).all():
            break
        label = smallest
    return label


def is_connected(edges: Edges, parties: int) -> bool:
    """Do the edges, shape (m, 2), connect all parties?"""
    return bool((components(edges, parties) == 0).all())


def is_bipartite(edges: Edges, parties: int) -> bool:
    """Is a connected graph with edges (m, 2) bipartite? It is if its double cover is not connected."""
    doubled = np.concatenate([edges + np.array([0, parties]), edges + np.array([parties, 0])]) if len(edges) else edges
    return not is_connected(np.sort(doubled, axis=1), 2 * parties)


def diameter(edges: Edges, parties: int) -> int:
    """The longest shortest path of a connected graph with edges (m, 2), in edges.

    Raises :class:`InputError` if the graph is not connected.
    """
    near = np.eye(parties, dtype=np.bool_)
    near[edges[:, 0], edges[:, 1]] = near[edges[:, 1], edges[:, 0]] = True
    reached, steps = np.eye(parties, dtype=np.bool_), 0
    while not reached.all():
        reached, steps = (reached.astype(np.float32) @ near.astype(np.float32)) > 0, steps + 1
        if steps > parties:
            raise InputError("the graph is not connected: it has no diameter. Add edges.")
    return steps


def static_schedule(edges: Edges, parties: int, rounds: int) -> Schedule:
    """Every party sends to all its neighbours in every round. Edges (m, 2)."""
    table = neighbour_table(edges, parties)
    return Schedule(np.broadcast_to(table, (rounds, *table.shape)).copy())


def neighbour_table(edges: Edges, parties: int) -> NDArray[np.int32]:
    """Neighbours in rising order, shape (n, largest degree), padded with -1, from edges (m, 2)."""
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    degree = np.bincount(ends[:, 0], minlength=parties)
    table = np.full((parties, int(degree.max(initial=0))), NOBODY, dtype=np.int32)
    slot = np.arange(len(ends)) - np.repeat(np.cumsum(degree) - degree, degree)
    table[ends[:, 0], slot] = ends[:, 1]
    return table


def survives(edges: Edges, parties: int, removed: int) -> bool:
    """Is the graph still connected whichever ``removed`` parties are taken away? By Menger's theorem, with flows.

    Of any ``removed`` + 1 parties one is not taken away; from each of these there must be more than ``removed`` disjoint paths to
    every other party that is not its neighbour. Some milliseconds for each such pair.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    if parties <= removed + 1:
        return True
    # Party i is entered at i and left at i + parties, by one path only.
    everyone = np.arange(parties)
    both = np.concatenate([edges, edges[:, ::-1]])
    start = np.concatenate([everyone, both[:, 0] + parties])
    end = np.concatenate([everyone + parties, both[:, 1]])
    network = csr_array((np.ones(len(start), dtype=np.int32), (start, end)), shape=(2 * parties, 2 * parties))
    for source in range(removed + 1):
        near = set(both[both[:, 0] == source, 1].tolist()) | {source}
        for sink in range(parties):
            if sink not in near and maximum_flow(network, source + parties, sink).flow_value <= removed:
                return False
    return True
