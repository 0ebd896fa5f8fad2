"""Fields of protocols that run on a fixed undirected graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.schema import OPEN, Configured, parameter
from quietmean.graphs.undirected import GRAPHS, Edges, make_graph, normalised_edges
from quietmean.randomness import Seed


def read_edges(raw: Any) -> Edges:
    """Edges, shape (m, 2), from a list of pairs. Raises :class:`InputError` for anything else."""
    return np.array(convert(raw, list[tuple[int, int]], partial(unfit_field, "edges")), dtype=np.int64).reshape(-1, 2)


# The fields that determine how edges are made, reset once the edges are made.
EDGES_ARE_MADE: dict[str, Any] = {"graph": OPEN, "graph_seed": 0, "radius": None, "connectivity": 2}
_FIELDS_OF_GRAPH = {
    "geometric": ("graph_seed", "radius"),
    "geometric-cube": ("graph_seed", "radius"),
    "harary": ("connectivity",),
}


def never_written(parameters: Any) -> bool:
    """For fields that only determine how others are made."""
    return False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GraphParameters(Configured):
    """``edges`` (m, 2) of a graph of ``parties``, or how they are made: ``graph`` and what belongs to it."""

    edges: Edges = parameter(
        help="edges of the graph, as pairs of parties",
        option=True,
        flag=None,
        required=False,
        read=read_edges,
        write=lambda edges: edges.tolist(),
    )
    parties: int = parameter(help="number of parties", required=False, written=never_written)
    graph: str = parameter(help="the graph", option=True, flag=None, required=False, choices=GRAPHS, written=never_written)
    graph_seed: int = parameter(0, help="number of a random graph", option=True, flag=None, written=never_written)
    radius: float | None = parameter(None, help="reach of a geometric graph", option=True, flag=None, written=never_written)
    connectivity: int = parameter(2, help="connectivity of a Harary graph", option=True, flag=None, written=never_written)

    def graph_edges(self, parties: int) -> Edges:
        """The given edges in canonical form, or those of the named graph.

        Shape (m, 2). Raises :class:`InputError` if neither is given, for edges or a graph that cannot be, and for a field that
        says nothing of them.
        """
        which = "edges that are given" if self.edges is not OPEN else f"graph {self.graph}"
        own = _FIELDS_OF_GRAPH.get(self.graph, ()) if self.edges is OPEN else ()
        for name, usual in EDGES_ARE_MADE.items():
            value = getattr(self, name)
            if value != usual and name not in ("graph", *own):
                raise InputError(f"{name} is {value} and says nothing of {which}: leave it out")
        if self.edges is not OPEN:
            return normalised_edges(self.edges.tolist(), parties)
        if self.graph is OPEN:
            raise InputError("field 'graph' is missing: add it, it is a text")
        seed = Seed.public("consensus graph", self.graph_seed)
        return make_graph(self.graph, parties, seed, radius=self.radius, connectivity=self.connectivity)
