"""Transcripts as data.

An execution of a linear-Gaussian protocol is

    (I - L) m = B x + A e,      e ~ N(0, diag(s^2)),

one row per message in causal order. Message variables are kept, never eliminated: that keeps every matrix sparse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.arrays import Array, Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.lazy_modules import sparse
from quietmean.core.party import PartyId

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Sparse: TypeAlias = "csr_array[np.float64]"
Known: TypeAlias = "csr_array[np.bool_]"


@dataclass(frozen=True, eq=False)
class Transcript:
    """The linear combination that each message is, its sender, and the parties that know it.

    Shapes: M messages, n parties, K noise terms. ``message_round[m]`` is the round in which the message is sent (one after the
    last round for what is released); a variable that is never sent, such as the last state of a party that dropped out, is known
    to its sender alone.
    """

    dependence: Sparse  # L, (M, M), strictly lower triangular
    values: Sparse  # B, (M, n)
    noise: Sparse  # A, (M, K)
    noise_scale: Array  # s, (K,): standard deviations
    noise_group: NDArray[np.str_]  # (K,): what the noise is for; scales may be changed group by group
    sender: Ints  # (M,)
    message_round: Ints  # (M,)
    released: Mask  # (M,): known to all parties
    message_known: Known  # (M, n): sender and receivers
    noise_known: Known  # (K, n)

    @property
    def parties(self) -> int:
        return int(self.values.shape[1])

    @property
    def messages(self) -> int:
        return int(self.values.shape[0])

    def with_noise_scales(self, scales: Mapping[str, float]) -> Transcript:
        """Return this execution with other standard deviations, one per noise group; for declared transcripts.

        A traced one has unit scales and the party machine's own levels in ``noise``.
        """
        return replace(self, noise_scale=np.array([scales[str(group)] for group in self.noise_group], dtype=np.float64))

    def with_seen(self, seen: Iterable[tuple[int, PartyId, PartyId]]) -> Transcript:
        """Return this transcript where receivers know more: (round, sender, receiver) of messages that it has already.

        All that a sender sends in one round counts as seen, if the transcript has several messages of it.
        """
        knowers = self.message_known.tolil()
        for round_, sender, receiver in seen:
            knowers[np.nonzero((self.sender == sender) & (self.message_round == round_) & ~self.released)[0], receiver] = True
        return replace(self, message_known=sparse.csr_array(knowers))

    def find(self, party: PartyId, time: int) -> int:
        """The row of what ``party`` held after round ``time``: the message it sent next, or its last state.

        Raises :class:`InputError` if there is none.
        """
        own = np.nonzero((self.sender == party) & (self.message_round > time))[0]
        if own.size == 0:
            raise InputError(f"message [{party}, {time}] does not exist: name [party, round] with a round of this execution")
        return int(own[np.argmin(self.message_round[own])])

    def eliminated(self) -> tuple[Array, Array]:
        """The dense maps (M, n) and (M, K) from values and from standard noise to every message: for tests and small sizes.

        They are (I - L)^-1 B and (I - L)^-1 A diag(s).
        """
        columns = np.hstack([self.values.toarray(), self.noise.toarray() * self.noise_scale])
        # Forward substitution: every message comes after those that it builds on.
        begins, used, weights = self.dependence.indptr, self.dependence.indices, self.dependence.data
        for row in np.nonzero(np.diff(begins))[0].tolist():
            entries = slice(begins[row], begins[row + 1])
            for message, weight in zip(used[entries].tolist(), weights[entries].tolist(), strict=True):
                columns[row] += weight * columns[message]
        return columns[:, : self.parties], columns[:, self.parties :]


class TranscriptBuilder:
    """Collects rows one by one; for protocols with few messages and for tracing."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._entries: dict[str, list[tuple[int, int, float]]] = {"dependence": [], "values": [], "noise": []}
        self._senders: list[int] = []
        self._rounds: list[int] = []
        self._released: list[bool] = []
        self._message_known: list[set[int]] = []
        self._scales: list[float] = []
        self._groups: list[str] = []
        self._noise_known: list[set[int]] = []

    def add_noise(self, known_to: Iterable[PartyId], scale: float, group: str) -> int:
        """A new independent Gaussian of standard deviation ``scale``; returns its index."""
        self._scales.append(scale)
        self._groups.append(group)
        self._noise_known.append(set(known_to))
        return len(self._scales) - 1

    def add_message(
        self,
        sender: PartyId,
        round_: int,
        receivers: Iterable[PartyId] = (),
        *,
        messages: Mapping[int, float] | None = None,
        values: Mapping[int, float] | None = None,
        noise: Mapping[int, float] | None = None,
        released: bool = False,
    ) -> int:
        """A new variable: a linear combination of earlier messages, values and noise; returns its row."""
        row = len(self._senders)
        for kind, coefficients in (("dependence", messages), ("values", values), ("noise", noise)):
            self._entries[kind] += [(row, column, weight) for column, weight in (coefficients or {}).items() if weight != 0.0]
        self._senders.append(sender)
        self._rounds.append(round_)
        self._released.append(released)
        self._message_known.append({sender, *receivers})
        return row

    def build(self) -> Transcript:
        """The transcript of all rows added so far."""
        count = len(self._senders)
        return Transcript(
            dependence=_matrix(self._entries["dependence"], (count, count)),
            values=_matrix(self._entries["values"], (count, self._parties)),
            noise=_matrix(self._entries["noise"], (count, len(self._scales))),
            noise_scale=np.array(self._scales, dtype=np.float64),
            noise_group=np.array(self._groups, dtype=np.str_),
            sender=np.array(self._senders, dtype=np.int64),
            message_round=np.array(self._rounds, dtype=np.int64),
            released=np.array(self._released, dtype=np.bool_),
            message_known=known_matrix(self._message_known, self._parties),
            noise_known=known_matrix(self._noise_known, self._parties),
        )


def _matrix(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> Sparse:
    rows, columns, weights = zip(*entries, strict=True) if entries else ((), (), ())
    return sparse.coo_array(
        (np.array(weights, dtype=np.float64), (np.array(rows, int), np.array(columns, int))), shape=shape
    ).tocsr()


def known_matrix(knowers: list[set[int]], parties: int) -> Known:
    """One row of booleans for each set of parties, shape (rows, n)."""
    rows = [row for row, members in enumerate(knowers) for _ in members]
    columns = [party for members in knowers for party in members]
    data = np.ones(len(rows), dtype=np.bool_)
    return sparse.coo_array((data, (np.array(rows, int), np.array(columns, int))), shape=(len(knowers), parties)).tocsr()
