"""The encoding of one record as a public program: a list of operations on doubles, which any language runs to the last bit.

It is recorded while a workload encodes a record of which nothing is known. So it is what the workload does, and not a second way
to do it. Every operation is one of IEEE 754 doubles, element by element, in the recorded order; there are no powers, logarithms
or sums of many numbers. A workload that needs others has no program (:class:`NoProgram` says where).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from quietmean.core.arrays import Array, Mask
from quietmean.core.errors import InputError
from quietmean.statistics.coding import SeenRecords
from quietmean.statistics.columns import Column
from quietmean.statistics.workload import Workload

# What an operation does with values of shape (rows,). A truth is 1 or 0. The first value of "least" and "most" stays if both
# are equal; "nearest" rounds halves to the even neighbour, and never to -0; "choose" takes the second value where the first is
# not 0, else the third.
_OPERATIONS: dict[str, Callable[..., Array]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "<": lambda a, b: _choose(a < b, 1.0, 0.0),
    "<=": lambda a, b: _choose(a <= b, 1.0, 0.0),
    "=": lambda a, b: _choose(a == b, 1.0, 0.0),
    "least": lambda a, b: _choose(b < a, b, a),
    "most": lambda a, b: _choose(b > a, b, a),
    "missing": lambda a: _choose(np.isnan(a), 1.0, 0.0),
    "nearest": lambda a: np.rint(a) + 0.0,
    "choose": lambda a, b, c: _choose(a != 0.0, b, c),
}
# A number of its own; the cell of a column, by its place; and the number of a table, by the table's place, at a whole value.
CONSTANT, CELL, LOOK_UP = "constant", "cell", "look up"
# A page has room for as many operations, and runs them at once.
MOST_OPERATIONS = 20_000
Operation = tuple[str | int | float | None, ...]


def _choose(truth: Mask, one: Array | float, other: Array | float) -> Array:
    return np.asarray(np.where(truth, one, other), dtype=np.float64)


class NoProgram(InputError):
    """A study that no program encodes; the sentence says why."""


@dataclass(frozen=True)
class VectorProgram:
    """What makes the vector (d,) of a record of the ``columns``.

    ``operations``: each with the places of those before it whose values it takes; ``values``: the place of each coordinate.
    ``tables``: of numbers that are looked up.
    """

    columns: tuple[Column, ...]
    operations: tuple[Operation, ...] = field(repr=False)
    values: tuple[int, ...] = field(repr=False)
    tables: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, workload: Workload) -> VectorProgram:
        """Record how a workload encodes a record. Raises :class:`NoProgram` where it does more than a program can."""
        if workload.of_persons or workload.hides_count or workload.products:
            what = "products" if workload.products else "private counts" if workload.hides_count else "persons"
            raise NoProgram(f"a study of {what} has no encoding program. Let contributors use quietmean send.")
        if derived := [column.name for column in workload.columns if column.origin]:
            raise NoProgram(
                f"column {derived[0]!r} is a transform, which no encoding program has. Ask for the column itself, or let "
                "contributors use quietmean send."
            )
        tape, parts = _Tape(), []
        inside = workload.inside(cast("Array", tape.cells(len(workload.columns))))
        for feature, scale in workload.scales.items():
            seen = SeenRecords(inside, workload.columns)
            try:
                parts.append(tape.read(feature.encode(seen) * scale))
            except _OtherOperation as error:
                names = " and ".join(sorted(map(repr, seen.names)))
                raise NoProgram(
                    f"column {names} is encoded by {error}, which no encoding program has. Ask for means, counts or tables, "
                    "or let contributors use quietmean send."
                ) from None
        places = np.concatenate(parts, axis=1)[0].tolist()
        return cls(tuple(workload.columns), *_needed(tape.operations, places), tuple(tape.tables))

    def vectors(self, records: Array) -> Array:
        """The vector of each record by itself, shape (rows, d), from cells, shape (rows, columns), NaN where one is missing."""
        made: list[Array] = []
        for name, *given in self.operations:
            if name == CONSTANT:
                value = math.nan if given[0] is None else float(cast("float", given[0]))
                made.append(np.full(len(records), value))
            elif name == CELL:
                made.append(np.asarray(records[:, cast("int", given[0])], dtype=np.float64))
            elif name == LOOK_UP:
                table, place = np.array(self.tables[cast("int", given[0])]), made[cast("int", given[1])]
                made.append(table[place.astype(np.int64)])
            else:
                made.append(_OPERATIONS[str(name)](*(made[cast("int", place)] for place in given)))
        return np.column_stack([made[place] for place in self.values])

    def describe(self) -> dict[str, Any]:
        """The program as plain JSON data; a constant that is not a number is null."""
        return {
            "columns": [_described(column) for column in self.columns],
            "operations": [list(operation) for operation in self.operations],
            "values": list(self.values),
            "tables": [list(table) for table in self.tables],
        }


def _described(column: Column) -> dict[str, Any]:
    """What a form has to know of a column: by which numbers its cells are meant."""
    if not column.numeric:
        return {"name": column.name, "levels": list(column.categories), "boolean": column.boolean}
    return {"name": column.name, "low": column.low, "high": column.high, "since": column.since, "whole": column.whole}


def _needed(operations: Sequence[Operation], values: Sequence[int]) -> tuple[tuple[Operation, ...], tuple[int, ...]]:
    """The operations that values depend on, numbered anew, and the values' places."""
    needed = set(values)
    for place in range(len(operations) - 1, -1, -1):
        if place in needed:
            needed.update(cast("tuple[int, ...]", operations[place][_own(operations[place]) :]))
    renumbered = {place: number for number, place in enumerate(sorted(needed))}
    kept: list[Operation] = []
    for place in renumbered:
        own = _own(operations[place])
        taken = (renumbered[cast("int", each)] for each in operations[place][own:])
        kept.append((*operations[place][:own], *taken))
    return tuple(kept), tuple(renumbered[place] for place in values)


def _own(operation: Operation) -> int:
    """How much of an operation stands before the places of those whose values it takes."""
    return 2 if operation[0] in (CONSTANT, CELL, LOOK_UP) else 1


class _Tape:
    """Operations as they are recorded: equal ones once."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._places: dict[Operation, int] = {}
        self.tables: list[tuple[float, ...]] = []

    def put(self, *operation: str | int | float | None) -> int:
        # 0.0 and -0.0, and 1 and 1.0, are equal keys.
        key: Operation = tuple(map(repr, operation))
        if key not in self._places:
            if len(self.operations) >= MOST_OPERATIONS:
                raise _OtherOperation(f"more than {MOST_OPERATIONS:,} operations")
            self._places[key] = len(self.operations)
            self.operations.append(operation)
        return self._places[key]

    def cells(self, columns: int) -> _Traced:
        return _Traced(self, np.array([[self.put(CELL, column) for column in range(columns)]]))

    def read(self, value: Any) -> Any:
        """The places of numbers, in their shape: of those that are not recorded yet as constants."""
        if isinstance(value, _Traced):
            return value.places
        numbers = np.asarray(value, dtype=np.float64)
        places = [self.put(CONSTANT, None if math.isnan(each) else each) for each in numbers.ravel().tolist()]
        return np.array(places, dtype=np.int64).reshape(numbers.shape)

    def apply(self, name: str, *given: Any) -> _Traced:
        """An operation on each element."""
        together = np.broadcast_arrays(*(self.read(each) for each in given))
        rows = zip(*(each.ravel().tolist() for each in together), strict=True)
        places = [self.put(name, *each) for each in rows]
        return _Traced(self, np.array(places, dtype=np.int64).reshape(together[0].shape))


class _OtherOperation(Exception):
    """An operation of numpy that a program lacks."""


class _Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of numbers of which nothing is known but their ``places`` on the tape."""

    def __init__(self, tape: _Tape, places: Any) -> None:
        self.tape, self.places = tape, places

    @property
    def shape(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.places.shape)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> _Traced:
        return _Traced(self.tape, np.asarray(self.places[index]))

    def __array__(self, *given: Any, **more: Any) -> Any:
        raise _OtherOperation("values that decide what is computed")

    def __bool__(self) -> bool:
        raise _OtherOperation("values that decide what is computed")

    def astype(self, kind: Any) -> _Traced:
        """All numbers are doubles, and truths 1 or 0."""
        return self

    def looked_up(self, table: Array) -> _Traced:
        """The numbers of a table at these whole values, which lie in it."""
        numbers, tables = tuple(table.tolist()), self.tape.tables
        if numbers not in tables:
            tables.append(numbers)
        number = tables.index(numbers)
        places = [self.tape.put(LOOK_UP, number, place) for place in self.places.ravel().tolist()]
        return _Traced(self.tape, np.array(places, dtype=np.int64).reshape(self.shape))

    def reshape(self, *shape: Any) -> _Traced:
        return _Traced(self.tape, self.places.reshape(*shape))

    def sum(self, axis: int, keepdims: bool = False) -> _Traced:
        """A sum of a few numbers, the first ones first."""
        return self._along("+", axis, keepdims)

    def max(self, axis: int) -> _Traced:
        return self._along("most", axis)

    def any(self, axis: int) -> _Traced:
        return self.max(axis)

    def _along(self, name: str, axis: int, keepdims: bool = False) -> _Traced:
        first, *others = (_Traced(self.tape, part) for part in np.moveaxis(self.places, axis, 0))
        for part in others:
            first = self.tape.apply(name, first, part)
        return _Traced(self.tape, np.expand_dims(first.places, axis)) if keepdims else first

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **more: Any) -> Any:
        if method != "__call__" or more or ufunc not in _UFUNCS:
            raise _OtherOperation(f"the operation {ufunc.__name__!r}")
        return _UFUNCS[ufunc](self.tape, *given)

    def __array_function__(self, function: Any, types: Any, given: tuple[Any, ...], more: Mapping[str, Any]) -> Any:
        if function not in _FUNCTIONS:
            raise _OtherOperation(f"the operation {function.__name__!r}")
        return _FUNCTIONS[function](self.tape, *given, **more)


def _power(tape: _Tape, value: Any, exponent: Any) -> _Traced:
    if not np.isscalar(exponent) or exponent != 2:
        raise _OtherOperation("the operation 'power'")
    return tape.apply("*", value, value)


def _joined(join: Callable[..., Any]) -> Callable[..., _Traced]:
    return lambda tape, parts, **more: _Traced(tape, join([tape.read(part) for part in parts], **more))


def _one_of(tape: _Tape, value: Any, among: Any) -> Any:
    found: Any = 0.0
    for each in np.asarray(among, dtype=np.float64).tolist():
        found = tape.apply("most", found, tape.apply("=", value, each))
    return found


def _bin(tape: _Tape, edges: Any, value: Any, side: str = "left") -> Any:
    """How many edges are below a number, or for the right ``side`` at it, too; all of them for what is missing."""
    found: Any = 0.0
    for edge in np.asarray(edges, dtype=np.float64).tolist():
        found = tape.apply("+", found, tape.apply("<" if side == "left" else "<=", edge, value))
    return tape.apply("choose", tape.apply("missing", value), float(len(edges)), found)


_UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda tape, a, b: tape.apply("+", a, b),
    np.subtract: lambda tape, a, b: tape.apply("-", a, b),
    np.multiply: lambda tape, a, b: tape.apply("*", a, b),
    np.true_divide: lambda tape, a, b: tape.apply("/", a, b),
    np.less: lambda tape, a, b: tape.apply("<", a, b),
    np.less_equal: lambda tape, a, b: tape.apply("<=", a, b),
    np.greater: lambda tape, a, b: tape.apply("<", b, a),
    np.greater_equal: lambda tape, a, b: tape.apply("<=", b, a),
    np.maximum: lambda tape, a, b: tape.apply("most", a, b),
    np.equal: lambda tape, a, b: tape.apply("=", a, b),
    np.bitwise_and: lambda tape, a, b: tape.apply("least", a, b),
    np.bitwise_or: lambda tape, a, b: tape.apply("most", a, b),
    np.invert: lambda tape, a: tape.apply("-", 1.0, a),
    np.isnan: lambda tape, a: tape.apply("missing", a),
    np.rint: lambda tape, a: tape.apply("nearest", a),
    np.power: _power,
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: lambda tape, truth, a, b: tape.apply("choose", truth, a, b),
    np.clip: lambda tape, a, low, high: tape.apply("least", tape.apply("most", a, low), high),
    np.column_stack: _joined(np.column_stack),
    np.hstack: _joined(np.hstack),
    np.stack: _joined(np.stack),
    np.concatenate: _joined(np.concatenate),
    np.isin: _one_of,
    np.searchsorted: _bin,
    np.ones_like: lambda tape, a: np.ones(a.shape),
}
