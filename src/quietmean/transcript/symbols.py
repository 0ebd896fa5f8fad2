"""A population program read with symbols: the transcript of the execution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.graphs import Flow
from quietmean.transcript.population import Floats, Injection, Ints, Mask, PopulationTerms, Reading, Receivers, Rows
from quietmean.transcript.transcript import Transcript

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# A column is the number of a variable plus what kind of variable it is.
_KIND_BITS = 40
_VALUE, _NOISE, _MESSAGE = (kind << _KIND_BITS for kind in range(3))
_NUMBER = (1 << _KIND_BITS) - 1


class LinearForms(Rows):
    """Sparse linear combinations of values, noise and messages, as entries (row, column, weight), each of shape (e,).

    Entries at the same place add up.

    ``only``: for each row the place of its only entry, or -1 for a row without any; None where a row may have several.
    """

    def __init__(self, size: int, row: Ints, column: Ints, weight: Floats, only: Ints | None = None) -> None:
        self.size, self.row, self.column, self.weight, self.only = size, row, column, weight, only

    @classmethod
    def variables(cls, size: int, row: Ints, first: int) -> LinearForms:
        """The variables ``first``, ``first + 1``, ..., one in each of the rows ``row``."""
        place = np.arange(row.size)
        return cls(size, row, place + first, np.ones(row.size), _places(row, size))

    @classmethod
    def joined(cls, size: int, parts: Sequence[tuple[Ints, Ints, Floats]]) -> LinearForms:
        rows, columns, weights = zip(*parts, strict=True)
        return cls(size, np.concatenate(rows), np.concatenate(columns), np.concatenate(weights))

    @property
    def _complete(self) -> bool:
        """Is there one entry for each row, in the order of the rows?"""
        return self.only is not None and self.row.size == self.size

    @property
    def entries(self) -> tuple[Ints, Ints, Floats]:
        return self.row, self.column, self.weight

    def __add__(self, other: Rows | float) -> LinearForms:
        if isinstance(other, LinearForms):
            return LinearForms.joined(self.size, [self.entries, other.entries])
        if isinstance(other, Rows) or other != 0:
            raise TypeError("a population program may add only linear forms to linear forms")
        return self

    def __mul__(self, factor: float | Floats) -> LinearForms:
        weight = self.weight * (factor[self.row] if isinstance(factor, np.ndarray) else factor)
        return LinearForms(self.size, self.row, self.column, weight, self.only)

    def __rmatmul__(self, flow: Flow) -> LinearForms:
        if self.only is not None:
            place, to, weight = flow.source if self._complete else self.only[flow.source], flow.to, flow.weight
            if not self._complete:
                there = place >= 0
                place, to, weight = place[there], to[there], weight[there]
            return LinearForms(flow.shape[0], to, self.column[place], weight * self.weight[place])
        if not flow.to.size:
            return LinearForms.variables(flow.shape[0], flow.to, 0)
        order = np.argsort(self.row, kind="stable")
        first = np.searchsorted(self.row[order], np.arange(self.size + 1))
        count = np.diff(first)[flow.source]
        # Every entry of the flow takes the run of entries of its source.
        begin = np.repeat(first[flow.source] - np.cumsum(count) + count, count)
        taken = order[begin + np.arange(begin.size)]
        weight = np.repeat(flow.weight, count) * self.weight[taken]
        return LinearForms(flow.shape[0], np.repeat(flow.to, count), self.column[taken], weight)

    def at(self, mask: Mask) -> LinearForms:
        here = mask[self.row]
        return LinearForms(self.size, self.row[here], self.column[here], self.weight[here])

    def of(self, members: Ints) -> tuple[Ints, Ints, Floats]:
        """The entries of some rows, each named once."""
        if self._complete:
            return members, self.column[members], self.weight[members]
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[members] = True
        return self.at(mask).entries


class SymbolicTerms(PopulationTerms):
    """Noise as symbols, for n parties: the same address gives the same symbol. Standard deviations are kept separately."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._drawn: dict[tuple[str, int], LinearForms] = {}
        self.count = 0
        self.groups: list[tuple[str, int]] = []
        self.scales: list[Floats] = []
        # Noise terms, and the parties that know them.
        self.known: list[tuple[Ints, Ints]] = []

    def normal(self, purpose: str, index: int, scale: float) -> LinearForms:
        if (purpose, index) not in self._drawn:
            everyone = np.arange(self._parties)
            self._drawn[purpose, index] = self._new(purpose, np.full(self._parties, scale), everyone, everyone)
        return self._drawn[purpose, index]

    def columns(self, purpose: str, index: int) -> Ints:
        """The transcript's columns of :meth:`normal` noise, one for each party; none where it was never drawn."""
        drawn = self._drawn.get((purpose, index))
        return np.zeros(0, dtype=np.int64) if drawn is None else drawn.column & _NUMBER

    def normal_of(self, parties: Ints, purpose: str, indices: Ints, scales: Floats) -> LinearForms:
        return self._new(purpose, scales, np.arange(parties.size), parties)

    def shared_normal(self, pairs: Ints, purpose: str, index: int, scale: float) -> LinearForms:
        return self._new(purpose, np.full(len(pairs), scale), np.repeat(np.arange(len(pairs)), 2), pairs.ravel())

    def randomised(self, rows: Rows, function: Callable[[PartyId, Vector, NoiseSource], Vector]) -> Rows:
        return rows

    def _new(self, group: str, scales: Floats, term: Ints, party: Ints) -> LinearForms:
        """As many new terms as there are ``scales``; ``party[k]`` knows the term in place ``term[k]``."""
        first, size = self.count, scales.size
        self.count += size
        self.groups.append((group, size))
        self.scales.append(scales)
        self.known.append((term + first, party))
        return LinearForms.variables(size, np.arange(size), _NOISE + first)


class SymbolicReading(Reading):
    """Collects what is sent; every message becomes a variable of its own."""

    symbolic = True

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._count = 0
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._senders: list[Ints] = []
        self._batches: list[tuple[int, int, bool]] = []
        self._receivers: list[tuple[Ints, Ints]] = []
        self.noise = SymbolicTerms(parties)
        self.values = LinearForms.variables(parties, np.arange(parties), _VALUE)

    def zeros(self) -> LinearForms:
        return LinearForms.variables(self._parties, np.arange(0), 0)

    def divided(self, held: Rows, parts: Ints) -> tuple[Rows, float]:
        return held * (1.0 / parts), 0.0

    def injected(self, held: Rows, injections: Sequence[Injection]) -> LinearForms:
        parts = [_forms(held).entries]
        for injection in injections:
            for factor, rows in injection.terms:
                row, column, weight = _forms(rows).of(injection.members)
                parts.append((row, column, weight * factor))
        return LinearForms.joined(held.size, parts)

    def computed(self, rows: Rows, function: Callable[[Floats], Floats]) -> Rows:
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
        sent, first = np.nonzero(senders)[0], self._count
        self._count += sent.size
        variables = LinearForms.variables(forms.size, sent, _MESSAGE + first)
        place, entries = _places(sent, forms.size), forms.entries
        if sent.size != forms.size:
            entries = forms.at(senders).entries
            variables += forms.at(~senders)
        row, column, weight = entries
        self._entries.append((place[row] + first, column, weight))
        self._senders.append(sent if owner is None else owner[sent])
        self._batches.append((sent.size, round_, public))
        if receivers is not None:
            self._receivers.append((place[receivers[0]] + first, receivers[1].astype(np.int64, copy=False)))
        return variables

    def transcript(self) -> Transcript:
        """Everything that was sent, in the order in which the program sent it."""
        noise, count = self.noise, self._count
        row, column, weight = LinearForms.joined(count, self._entries).entries
        parts = {}
        for kind, width in ((_VALUE, self._parties), (_NOISE, noise.count), (_MESSAGE, count)):
            here = np.nonzero((column >= kind) & (column <= kind + _NUMBER))[0]
            parts[kind] = _matrix(row[here], column[here] - kind, weight[here], (count, width))
        sender = np.concatenate(self._senders)
        sizes, rounds, public = (np.array(column) for column in zip(*self._batches, strict=True))
        known = [np.concatenate(part) for part in zip((np.arange(count), sender), *self._receivers, strict=True)]
        terms = [np.concatenate(part) for part in zip(*noise.known, strict=True)] if noise.known else [np.arange(0)] * 2
        groups = [np.full(size, group) for group, size in noise.groups]
        return Transcript(
            dependence=parts[_MESSAGE],
            values=parts[_VALUE],
            noise=parts[_NOISE],
            noise_scale=np.concatenate([np.zeros(0), *noise.scales]),
            noise_group=np.concatenate(groups) if groups else np.zeros(0, dtype=np.str_),
            sender=sender,
            message_round=np.repeat(rounds, sizes),
            released=np.repeat(public, sizes),
            message_known=_known(known[0], known[1], (count, self._parties)),
            noise_known=_known(terms[0], terms[1], (noise.count, self._parties)),
        )


def _places(rows: Ints, size: int) -> Ints:
    """The place of each row in ``rows``, shape (size,), -1 where it has none."""
    place = np.arange(rows.size)
    if rows.size == size:
        return place
    places = np.full(size, -1)
    places[rows] = place
    return places


def _forms(rows: Rows) -> LinearForms:
    if not isinstance(rows, LinearForms):
        raise TypeError("a population program that is read with symbols may tell only what it made of them")
    return rows


def _matrix(rows: Ints, columns: Ints, weights: Floats, shape: tuple[int, int]) -> csr_array[np.float64]:
    from scipy.sparse import coo_array

    matrix = coo_array((weights, (rows, columns)), shape=shape).tocsr()
    matrix.eliminate_zeros()
    return matrix


def _known(rows: Ints, parties: Ints, shape: tuple[int, int]) -> csr_array[np.bool_]:
    from scipy.sparse import coo_array

    knows: NDArray[np.bool_] = np.ones(rows.size, dtype=np.bool_)
    return coo_array((knows, (rows, parties)), shape=shape).tocsr()
