"""Static undirected graphs, as edge lists of shape (m, 2): the smaller number first, in rising order. From public seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Ints
from quietmean.core.errors import InputError
from quietmean.core.schema import require_known
from quietmean.graphs.schedule import NOBODY, Schedule
from quietmean.randomness import BitStream, Seed

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
        raise InputError(f"{parties} party has nobody to talk to: at least 2 parties are needed")
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
        raise InputError(f"connectivity is {connectivity}: choose at least 1")
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
        raise InputError(f"radius is {reach:g}: choose a number > 0")
    stream = BitStream(seed)
    if parties > _MOST_IN_SPACE:
        raise InputError(
            f"a geometric graph of {parties} parties compares all pairs of them: choose another, or at most {_MOST_IN_SPACE}"
        )
    first, second = np.triu_indices(parties, 1)
    for _ in range(_MOST_DRAWS):
        points = stream.uniform(parties * space).reshape(parties, space)
        near = ((points[first] - points[second]) ** 2).sum(axis=1) <= reach**2
        edges = np.stack([first[near], second[near]], axis=1).astype(np.int64)
        if is_connected(edges, parties):
            return edges
    raise InputError(f"none of {_MOST_DRAWS} graphs with radius {reach:g} is connected: choose a larger radius")


def normalised_edges(pairs: Iterable[Iterable[int]], parties: int) -> Edges:
    """Edges in canonical form, shape (m, 2), duplicates merged. Raises :class:`InputError` for a pair that is not an edge."""
    listed = [tuple(pair) for pair in pairs]
    for pair in listed:
        if len(pair) != 2 or pair[0] == pair[1] or not all(0 <= end < parties for end in pair):
            raise InputError(f"edge {list(pair)} is none: name two different parties of 0..{parties - 1}")
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
            raise InputError("the graph is not connected: it has no diameter, add edges")
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
