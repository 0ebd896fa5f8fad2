"""A population program read with symbols: the transcript of the execution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.lazy import sparse
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.graphs import Flow
from quietmean.transcript import Transcript
from quietmean.transcript.population import InjectedRows, PopulationTerms, Reading, Receivers, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Columns are values, then messages, and from here on noise: until the program ends nobody knows how many messages there are.
_NOISE = 1 << 40

Number = TypeVar("Number", np.float64, np.bool_)


class Entries(NamedTuple):
    """Part of linear forms: row ``row[e]`` has ``weight[e]`` times the variable ``column[e]``; each of shape (e,).

    ``single``: no row has more than one of these entries, and the rows are in rising order.
    """

    row: Ints
    column: Ints
    weight: Array
    single: bool = False

    @classmethod
    def variables(cls, row: Ints, first: int) -> Entries:
        """The variables ``first``, ``first + 1``, ..., one in each of the rows ``row``, which rise."""
        return cls(row, np.arange(first, first + row.size), np.ones(row.size), single=True)

    def of(self, members: Ints, size: int, factor: float) -> Entries:
        """Multiples of rows.

        ``factor`` times those of some of ``size`` rows, each named once, in rising order.
        """
        if self.single and self.row.size == size:
            return Entries(members, self.column[members], self.weight[members] * factor, single=True)
        mask = np.zeros(size, dtype=np.bool_)
        mask[members] = True
        return self.taken(mask[self.row].nonzero()[0]).scaled(factor)

    def scaled(self, factor: float | Array) -> Entries:
        """Times one number, or one for each row, shape (size,)."""
        weight = self.weight * (factor[self.row] if isinstance(factor, np.ndarray) else factor)
        return Entries(self.row, self.column, weight, self.single)

    def taken(self, index: Ints) -> Entries:
        """The entries at these indices, in rising order."""
        return Entries(self.row[index], self.column[index], self.weight[index], self.single)

    def moved(self, flow: Flow) -> Entries:
        """The entries of the product with the flow."""
        size, to, source, weight = flow.shape[1], flow.to, flow.source, flow.weight
        if self.single and self.row.size == size:
            return Entries(to, self.column[source], weight * self.weight[source])
        if self.single:
            index = _places(self.row, size)[source]
            there = (index >= 0).nonzero()[0]
            index = index[there]
            return Entries(to[there], self.column[index], weight[there] * self.weight[index])
        if (np.bincount(source, minlength=size)[self.row] == 1).all():
            # As what parties keep that are offline: every row goes to one place.
            index = np.empty(size, dtype=np.int64)
            index[source] = np.arange(source.size)
            places = index[self.row]
            return Entries(to[places], self.column, weight[places] * self.weight)
        return self._moved_in_runs(flow)

    def _moved_in_runs(self, flow: Flow) -> Entries:
        size, to, source, weight = flow.shape[1], flow.to, flow.source, flow.weight
        order, in_row = self.row.argsort(kind="stable"), np.bincount(self.row, minlength=size)
        there = in_row[source].nonzero()[0]
        source = source[there]
        first, count = (in_row.cumsum() - in_row)[source], in_row[source]
        # Every entry of the flow takes the run of entries of its source.
        begin = (first - count.cumsum() + count).repeat(count)
        places = order[begin + np.arange(begin.size)]
        return Entries(to[there].repeat(count), self.column[places], weight[there].repeat(count) * self.weight[places])


class LinearForms(Rows):
    """Sparse linear combinations of values, noise and messages: the sum of ``parts``. Entries at the same place add up."""

    def __init__(self, size: int, *parts: Entries) -> None:
        self.size, self.parts = size, parts

    def __add__(self, other: Rows | float) -> LinearForms:
        if isinstance(other, LinearForms):
            return LinearForms(self.size, *self.parts, *other.parts)
        if isinstance(other, Rows) or other != 0:
            raise TypeError("a population program may add only linear forms to linear forms")
        return self

    def __mul__(self, factor: float | Array) -> LinearForms:
        return LinearForms(self.size, *[part.scaled(factor) for part in self.parts])

    def __rmatmul__(self, flow: Flow) -> LinearForms:
        parts = self.parts if flow.to.size else ()
        return LinearForms(flow.shape[0], *[part.moved(flow) for part in parts])

    def at(self, mask: Mask) -> LinearForms:
        return LinearForms(self.size, *[part.taken(mask[part.row].nonzero()[0]) for part in self.parts])


class SymbolicTerms(PopulationTerms):
    """Noise as symbols, for n parties: the same address gives the same symbol. Standard deviations are kept separately."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._drawn: dict[tuple[str, int], LinearForms] = {}
        self.count = 0
        self.groups: list[tuple[str, int]] = []
        self.scales: list[Array] = []
        # The parties that know each term, in rising order.
        self.holders: list[Ints] = []

    def normal(self, purpose: str, index: int, scale: float) -> LinearForms:
        if (purpose, index) not in self._drawn:
            self._drawn[purpose, index] = self._new(purpose, np.full(self._parties, scale), np.arange(self._parties))
        return self._drawn[purpose, index]

    def columns(self, purpose: str, index: int) -> Ints:
        """The transcript's columns of :meth:`normal` noise, one for each party; none where it was never drawn."""
        drawn = self._drawn.get((purpose, index))
        return np.zeros(0, dtype=np.int64) if drawn is None else drawn.parts[0].column - _NOISE

    def normal_of(self, parties: Ints, purpose: str, indices: Ints, scales: Array) -> LinearForms:
        return self._new(purpose, scales, parties)

    def shared_normal(self, pairs: Ints, purpose: str, index: int, scale: float) -> LinearForms:
        return self._new(purpose, np.full(len(pairs), scale), pairs)

    def randomised(self, rows: Rows, function: Callable[[PartyId, Vector, NoiseSource], Vector]) -> Rows:
        return rows

    def known(self) -> csr_array[np.bool_]:
        """The parties that know each term, shape (terms, n)."""
        counts = [np.full(len(holders), holders.size // max(len(holders), 1)) for holders in self.holders]
        begin = np.concatenate([np.zeros(1, dtype=np.int64), *counts]).cumsum()
        party = np.concatenate([np.zeros(0, dtype=np.int64), *(holders.ravel() for holders in self.holders)])
        return sparse.csr_array((np.ones(party.size, dtype=np.bool_), party, begin), shape=(self.count, self._parties))

    def _new(self, group: str, scales: Array, holders: Ints) -> LinearForms:
        """Make as many new terms as there are ``scales``; ``holders[k]`` is the party, or the parties, that know term k."""
        first, size = self.count, scales.size
        self.count += size
        self.groups.append((group, size))
        self.scales.append(scales)
        self.holders.append(holders)
        return LinearForms(size, Entries.variables(np.arange(size), _NOISE + first))


class SymbolicReading(Reading):
    """Collects what is sent; every message becomes a variable of its own."""

    symbolic = True

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._count = 0
        # What every message is; the entries of rows that are not sent have the row -1.
        self._entries: list[Entries] = []
        self._senders: list[Ints] = []
        self._batches: list[tuple[int, int, bool]] = []
        self._receivers: list[tuple[Ints, Ints]] = []
        self.noise = SymbolicTerms(parties)
        self.values = LinearForms(parties, Entries.variables(np.arange(parties), 0))

    def zeros(self) -> LinearForms:
        return LinearForms(self._parties)

    def divided(self, held: Rows, parts: Ints) -> tuple[Rows, float]:
        return held * (1.0 / parts), 0.0

    def injected(self, held: Rows, injections: Sequence[InjectedRows]) -> LinearForms:
        parts = [*_forms(held).parts]
        for injection in injections:
            for factor, rows in injection.terms:
                parts += [part.of(injection.members, held.size, factor) for part in _forms(rows).parts]
        # One part again, so that their number does not grow from round to round.
        return LinearForms(held.size, _joined(parts))

    def computed(self, rows: Rows, function: Callable[[Array], Array]) -> Rows:
        return rows

    def send(
        self,
        rows: Rows,
        senders: Mask,
        round_: int,
        receivers: Receivers | None = None,
        *,
        public: bool = False,
        owner: Ints | None = None,
    ) -> LinearForms:
        forms = _forms(rows)
        sent, first = senders.nonzero()[0], self._count
        self._count += sent.size
        variable, kept = _places(sent, forms.size, first), []
        for part in forms.parts if sent.size else ():
            row = variable[part.row]
            self._entries.append(Entries(row, part.column, part.weight))
            if sent.size < forms.size and (stays := (row < 0).nonzero()[0]).size:
                kept.append(part.taken(stays))
        self._senders.append(sent if owner is None else owner[sent])
        self._batches.append((sent.size, round_, public))
        if receivers is not None:
            self._receivers.append((variable[receivers[0]], receivers[1].astype(np.int64, copy=False)))
        return LinearForms(forms.size, Entries.variables(sent, self._parties + first), *kept) if sent.size else forms

    def transcript(self) -> Transcript:
        """Everything that was sent, in the order in which the program sent it."""
        terms, count, parties = self.noise, self._count, self._parties
        values, dependence, noise = self._matrices()
        sender = np.concatenate(self._senders)
        what, knows = (np.concatenate(part) for part in zip((np.arange(count), sender), *self._receivers, strict=True))
        sizes, rounds, public = (np.array(column) for column in zip(*self._batches, strict=True))
        groups, group_sizes = zip(*terms.groups, strict=True) if terms.groups else ((), ())
        return Transcript(
            dependence=dependence,
            values=values,
            noise=noise,
            noise_scale=np.concatenate([np.zeros(0), *terms.scales]),
            noise_group=np.repeat(np.array(groups, dtype=np.str_), np.array(group_sizes, dtype=np.int64)),
            sender=sender,
            message_round=np.repeat(rounds, sizes),
            released=np.repeat(public, sizes),
            message_known=_matrix(what, knows, np.ones(what.size, dtype=np.bool_), (count, parties)),
            noise_known=terms.known(),
        )

    def _matrices(self) -> list[csr_array[np.float64]]:
        """What every message is, of values, of messages and of noise."""
        row, column, weight, _ = _joined(self._entries)
        kind = (column >= self._parties).astype(np.int8) + (column >= _NOISE)
        kind[row < 0] = -1
        matrices = []
        for number, (first, width) in enumerate([(0, self._parties), (self._parties, self._count), (_NOISE, self.noise.count)]):
            here = (kind == number).nonzero()[0]
            matrices.append(_matrix(row[here], column[here] - first, weight[here], (self._count, width)))
        return matrices


def _places(rows: Ints, size: int, first: int = 0) -> Ints:
    """``first`` plus the place of each row in ``rows``, shape (size,), -1 where it has none."""
    index = np.arange(first, first + rows.size)
    if rows.size == size:
        return index
    places = np.full(size, -1)
    places[rows] = index
    return places


def _joined(parts: Sequence[Entries]) -> Entries:
    if not parts:
        return Entries.variables(np.arange(0), 0)
    rows, columns, weights, _ = zip(*parts, strict=True)
    return Entries(np.concatenate(rows), np.concatenate(columns), np.concatenate(weights))


def _forms(rows: Rows) -> LinearForms:
    if not isinstance(rows, LinearForms):
        raise TypeError("a population program that is read with symbols may tell only what it made of them")
    return rows


def _matrix(rows: Ints, columns: Ints, weights: NDArray[Number], shape: tuple[int, int]) -> csr_array[Number]:
    # The type that indices get in the end: scipy takes much longer to find that out.
    index = np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64
    matrix = sparse.coo_array((weights, (rows.astype(index), columns.astype(index))), shape=shape).tocsr()
    if not matrix.data.all():
        matrix.eliminate_zeros()
    return matrix
