"""Reading single fields of a JSON object, with the error that a person needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np

from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.schema import (
    KIND_NAMES,
    OPEN,
    Configured,
    is_kind,
    missing_field,
    parameter,
    refuse_unknown,
    require_known,
    require_usual,
    wrong_field,
)
from quietmean.graphs import GRAPHS, Edges, make_graph, normalised_edges
from quietmean.randomness import Seed

# The entries of a receipt besides those of its execution.
RECEIPT_ENTRIES = ("certify", "result", "origin", "gate", "no_result")

Field = TypeVar("Field", int, float, str, bool)

Choice = TypeVar("Choice", bound=StrEnum)


def check_entries(raw: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises :class:`InputError` for an entry of an execution file that is none of ``known`` nor a receipt's, and for a number of
    a size that no study has: files may be of strangers, and what is computed from one must not overflow.
    """
    refuse_unknown("an execution", raw, [*known, *RECEIPT_ENTRIES])
    for name in raw.keys() - set(RECEIPT_ENTRIES):
        _require_usual(name, raw[name])


def _require_usual(name: str, entry: Any) -> None:
    """Check all numbers in an entry, and in what it holds."""
    if isinstance(entry, dict):
        entry = list(entry.values())
    if isinstance(entry, list | tuple):
        # Most of a large file are lists of parties, and who was there.
        are_whole = entry and set(map(type, entry)) <= {int, bool}
        for inner in (min(entry), max(entry)) if are_whole else entry:
            _require_usual(name, inner)
    elif isinstance(entry, int | float):
        require_usual(name, entry)


def required_field(raw: Mapping[str, Any], name: str, kind: type[Field]) -> Field:
    """The field as a value of type ``kind``. Raises :class:`InputError` if it is missing or of another type."""
    if name not in raw:
        raise missing_field(name, KIND_NAMES[kind])
    if not is_kind(raw[name], kind):
        raise wrong_field(name, raw[name], KIND_NAMES[kind])
    return kind(raw[name])


def optional_field(raw: Mapping[str, Any], name: str, kind: type[Field], default: Field) -> Field:
    """The field as a value of type ``kind``, or the default. Raises :class:`InputError` if it is of another type."""
    return required_field(raw, name, kind) if name in raw else default


def optional_choice(raw: Mapping[str, Any], name: str, kind: type[Choice], default: Choice) -> Choice:
    """The field as a member of ``kind``, or the default. Raises :class:`InputError` if it is none of the members."""
    return kind(require_known(name, raw.get(name, default), kind))


class Hints(msgspec.Struct, frozen=True):
    """The entry ``certify`` of a receipt: how it is to be certified, as far as it says so."""

    epsilon: float | None = None
    delta: float | None = None
    colluding: int | None = None
    nats: float | None = None

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Hints:
        """Make hints from a receipt, which may be a stranger's. Raises :class:`InputError` for an entry of another form."""
        hints = convert(raw.get("certify") or {}, cls, partial(unfit_field, "certify"))
        if hints.delta is not None and not 0 < hints.delta < 1:
            raise InputError(f"field 'certify' has delta {hints.delta:g}. Choose a delta between 0 and 1.")
        return hints


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
    """Say no, for fields that only determine how others are made."""
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
                raise InputError(f"{name} is {value} and says nothing of {which}. Leave it out.")
        if self.edges is not OPEN:
            return normalised_edges(self.edges.tolist(), parties)
        if self.graph is OPEN:
            raise InputError("field 'graph' is missing. Add it, it is a text.")
        seed = Seed.public("consensus graph", self.graph_seed)
        return make_graph(self.graph, parties, seed, radius=self.radius, connectivity=self.connectivity)
