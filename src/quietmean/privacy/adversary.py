"""Adversaries: passive, with unlimited computing power, and with exactly the knowledge that they declare."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.randomness import BitStream, Seed
from quietmean.transcript import Transcript


@dataclass(frozen=True)
class View:
    """What an adversary knows of a transcript: masks over messages (M,), noise terms (K,) and values (n,)."""

    messages: Mask
    noise: Mask
    values: Mask


@dataclass(frozen=True)
class Adversary:
    """Corrupt parties pool everything that they send, receive, draw and know; observed messages were intercepted.

    ``observed`` holds pairs (party, round): what the party held after that round, as it next sent it. Everything released and
    the whole communication pattern (who sent to whom, who was online) is always known (IncA, section 2.3).
    """

    corrupt: frozenset[PartyId] = frozenset()
    observed: frozenset[tuple[PartyId, int]] = frozenset()

    @classmethod
    def collusion(cls, parties: Iterable[PartyId]) -> Adversary:
        return cls(corrupt=frozenset(parties))

    @classmethod
    def eavesdropper(cls, messages: Iterable[tuple[PartyId, int]]) -> Adversary:
        return cls(observed=frozenset(messages))

    @classmethod
    def everyone_but(cls, party: PartyId, parties: int) -> Adversary:
        return cls(corrupt=frozenset(range(parties)) - {party})

    @classmethod
    def random_eavesdropper(cls, fraction: float, transcript: Transcript, seed: Seed) -> Adversary:
        """Intercepts each party's held value after each round but the last, independently with probability ``fraction``.

        Raises :class:`InputError` unless 0 <= ``fraction`` <= 1.
        """
        if not 0 <= fraction <= 1:
            raise InputError(f"observe-fraction is {fraction:g}. Choose 0 to 1, the chance that a message is seen.")
        sent = np.nonzero((transcript.message_round > 0) & ~transcript.released)[0]
        sent = sent[_by_creation(transcript.sender[sent], transcript.message_round[sent])]
        chosen = sent[BitStream(seed.derive("eavesdropper")).uniform(sent.size) < fraction]
        senders, rounds = transcript.sender[chosen], transcript.message_round[chosen]
        return cls(observed=frozenset((int(i), int(t) - 1) for i, t in zip(senders, rounds, strict=True)))

    def honest(self, parties: int) -> list[PartyId]:
        """The honest ones of all ``parties``, in order. Raises :class:`InputError` if a corrupt party does not exist."""
        unknown = [party for party in self.corrupt if not 0 <= party < parties]
        if unknown:
            raise InputError(f"corrupt party {min(unknown)} does not exist. Choose one of 0..{parties - 1}.")
        return [party for party in range(parties) if party not in self.corrupt]

    def view(self, transcript: Transcript) -> View:
        """What the adversary knows of a transcript.

        Raises :class:`InputError` if a corrupt party or an observed message does not exist.
        """
        self.honest(transcript.parties)
        members = np.zeros(transcript.parties, dtype=np.bool_)
        members[list(self.corrupt)] = True
        messages = transcript.released | (transcript.message_known @ members.astype(np.int64) > 0)
        for party, time in self.observed:
            if not 0 <= party < transcript.parties or time < 0:
                raise InputError(f"observed message [{party}, {time}] does not exist. Name [party, round].")
            messages[transcript.find(party, time)] = True
        return View(messages, transcript.noise_known @ members.astype(np.int64) > 0, members)

    def describe(self) -> str:
        """The adversary in one clause, for reports."""
        parts = []
        if self.corrupt:
            names = ", ".join(map(str, sorted(self.corrupt)))
            parts.append(f"party {names} alone" if len(self.corrupt) == 1 else f"parties {names} colluding")
        if self.observed:
            parts.append(f"{count_of(len(self.observed), 'message')} intercepted")
        return " and ".join(parts) or "an outsider who sees what is published"


@dataclass(frozen=True)
class Eavesdropper:
    """Who reads messages beside any coalition. ``observed``: see :class:`Adversary`; ``chosen``: which these are, one clause."""

    observed: frozenset[tuple[PartyId, int]] = frozenset()
    chosen: str = ""

    def with_corrupt(self, corrupt: Iterable[PartyId]) -> Adversary:
        """The eavesdropper together with colluding parties."""
        return Adversary(frozenset(corrupt), self.observed)

    def describe(self) -> str:
        """What stands after the description of a coalition; nothing where nobody reads anything."""
        return f", and {count_of(len(self.observed), 'message')} intercepted ({self.chosen})" if self.chosen else ""


def _by_creation(sender: Ints, round_: Ints) -> Ints:
    """The order of messages by when their sender sent before, then by sender: the same however a transcript is laid out."""
    created = np.zeros_like(round_)
    for party in np.unique(sender):
        own = sender == party
        rounds = np.unique(round_[own])
        created[own] = np.concatenate([[0], rounds])[np.searchsorted(rounds, round_[own])]
    return np.lexsort((np.arange(sender.size), sender, created))
