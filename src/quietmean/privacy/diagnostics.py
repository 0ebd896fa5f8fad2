"""Reasons for the leakage of a view: the conditions of IncA's Theorems 4.5 to 4.9, in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from quietmean.core.arrays import Ints
from quietmean.core.party import PartyId
from quietmean.privacy.adversary import Adversary
from quietmean.transcript import Transcript

_RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Diagnosis:
    """``groups``: honest parties connected by messages or shared noise that the adversary did not see, largest first.

    ``rank``: the independent directions in which these can hide changes; n_H - 1 is all there can be (Theorem 4.5).
    ``strongly_connected``: each honest party reaches every other along them (Theorem 4.8). ``static``: every party has the same
    receivers in all of several rounds; ``watched``: honest parties none of whose messages went unseen (Theorem 4.9).
    """

    groups: tuple[tuple[PartyId, ...], ...]
    rank: int
    strongly_connected: bool
    static: bool
    watched: tuple[PartyId, ...]

    @property
    def honest(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def full_rank(self) -> bool:
        return self.rank >= self.honest - 1

    def sentences(self) -> list[str]:
        """The diagnosis in sentences, for reports."""
        if self.honest <= 1:
            return ["only one party is honest: nothing but its own noise hides it"]
        sentences = []
        if self.full_rank:
            how = "strongly connected (Theorem 4.8)" if self.strongly_connected else "enough (Theorem 4.5)"
            sentences.append(f"what nobody saw protects all {self.honest} honest parties as one group: it is {how}")
        else:
            sentences.append(
                f"what nobody saw hides {self.rank} of {self.honest - 1} possible directions (the condition "
                "of Theorem 4.5 fails). More cancelled noise alone cannot give the accuracy of a trusted "
                "curator"
            )
        if len(self.groups) > 1:
            sizes = ", ".join(str(len(group)) for group in self.groups)
            sentences.append(f"the honest parties fall into {len(self.groups)} groups with nothing hidden between them: {sizes}")
        if self.watched:
            sentences.append(f"every message of parties {', '.join(map(str, self.watched))} was seen")
        if self.static and len(self.watched) >= 2:
            sentences.append(
                "neighbours never change and two honest parties are fully seen: Theorem 4.9, change neighbours instead"
            )
        return sentences


def diagnose(transcript: Transcript, adversary: Adversary) -> Diagnosis:
    """The diagnosis of a transcript whose parties send shares to each other, equal ones to all receivers of a message."""
    honest = np.array(adversary.honest(transcript.parties), dtype=np.int64)
    index_of = np.full(transcript.parties, -1)
    index_of[honest] = np.arange(honest.size)
    sent = np.nonzero(~transcript.released & (np.diff(transcript.message_known.indptr) > 1))[0]
    seen = adversary.view(transcript).messages
    hidden = sent[~seen[sent]]
    pairs = _hidden_pairs(transcript, adversary, index_of)
    edges = _edges(transcript, hidden, pairs, index_of)
    groups = _groups(edges, honest)
    watched = sorted(set(transcript.sender[sent].tolist()) - set(transcript.sender[hidden].tolist()) - adversary.corrupt)
    strong = connected_components(edges, connection="strong")[0] == 1 if honest.size else False
    return Diagnosis(
        groups,
        _rank(transcript, hidden, pairs, index_of, honest.size),
        bool(strong),
        _is_static(transcript, sent),
        tuple(watched),
    )


def _receivers(transcript: Transcript, message: int) -> Ints:
    knowers_of = transcript.message_known
    knowers = knowers_of.indices[knowers_of.indptr[message] : knowers_of.indptr[message + 1]]
    receivers: Ints = knowers[knowers != transcript.sender[message]].astype(np.int64)
    return receivers


def _hidden_pairs(transcript: Transcript, adversary: Adversary, index_of: Ints) -> Ints:
    """Places of honest parties that have noise in common which the adversary does not know: shape (pairs, 2)."""
    noise_known = transcript.noise_known
    secret = ~adversary.view(transcript).noise & (transcript.noise_scale > 0) & (np.diff(noise_known.indptr) == 2)
    owners = noise_known.indices.astype(np.int64)[np.repeat(secret, np.diff(noise_known.indptr))].reshape(-1, 2)
    return np.unique(index_of[owners], axis=0)


def _edges(transcript: Transcript, hidden: Ints, pairs: Ints, index_of: Ints) -> csr_array[np.float64]:
    """Which honest parties sent to which others unseen, and who shares noise with whom, both ways: shape (n_H, n_H)."""
    senders, receivers = pairs.ravel().tolist(), pairs[:, ::-1].ravel().tolist()
    for message in hidden:
        for receiver in _receivers(transcript, int(message)):
            senders.append(int(index_of[transcript.sender[message]]))
            receivers.append(int(index_of[receiver]))
    count = int((index_of >= 0).sum())
    return csr_array((np.ones(len(senders)), (np.array(senders, int), np.array(receivers, int))), shape=(count, count))


def _groups(edges: csr_array[np.float64], honest: Ints) -> tuple[tuple[PartyId, ...], ...]:
    count, label = connected_components(edges, directed=False) if honest.size else (0, np.zeros(0, int))
    groups = [tuple(int(party) for party in honest[label == number]) for number in range(count)]
    return tuple(sorted(groups, key=lambda group: (-len(group), group)))


def _rank(transcript: Transcript, hidden: Ints, pairs: Ints, index_of: Ints, count: int) -> int:
    """The rank of the star vectors of the unseen messages: sum of the receivers' unit vectors minus as often the sender's.

    Noise that a pair shares hides what one more and the other less would have.
    """
    gram = np.zeros((count, count))
    for first, second in pairs:
        gram[np.ix_([first, second], [first, second])] += [[1.0, -1.0], [-1.0, 1.0]]
    for message in hidden:
        members = index_of[[int(transcript.sender[message]), *_receivers(transcript, int(message))]]
        star = np.ones(members.size)
        star[0] = 1.0 - members.size
        gram[np.ix_(members, members)] += np.outer(star, star)
    eigenvalues = np.linalg.eigvalsh(gram) if count else np.zeros(0)
    return int((eigenvalues > _RANK_TOLERANCE * max(float(eigenvalues.max(initial=0.0)), 1.0)).sum())


def _is_static(transcript: Transcript, sent: Ints) -> bool:
    receivers: dict[int, set[tuple[int, ...]]] = {}
    for message in sent:
        receivers.setdefault(int(transcript.sender[message]), set()).add(tuple(_receivers(transcript, int(message)).tolist()))
    rounds = np.unique(transcript.message_round[sent]).size
    return rounds > 1 and all(len(sets) == 1 for sets in receivers.values())
