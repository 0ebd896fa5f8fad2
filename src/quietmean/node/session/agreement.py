"""Agreement on the public seed before round 1: commit and reveal, so that nobody can choose the schedule.

Each party commits to a nonce, its public weight and its public exchange key, and reveals them once all commitments are in. The
public seed is derived from all of them; one honest nonce makes it unpredictable. Each key comes from its owner, over an
authenticated connection. Commitments and openings are durable, so that a restart continues with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import PeerError, ProtocolFailure
from quietmean.core.party import PartyId
from quietmean.node.monitor import AgreementWaits
from quietmean.node.net import ACCEPTED, Commit, Reveal, printable
from quietmean.node.phase import Phase
from quietmean.node.quorum import Opening, commitment_hash
from quietmean.node.session.context import Context
from quietmean.node.storage import Commitment, Store
from quietmean.randomness import Seed

_REPORT_SECONDS = 1.0

ForPeer: TypeAlias = Callable[[PartyId], bytes]


class Commitments:
    """The commitments and openings of all parties, durable; the receiving half of the agreement."""

    def __init__(self, store: Store, study: str, parties: int) -> None:
        self._store = store
        self._study = study
        self._parties = parties
        self._by_party = store.commitments()
        self.all_committed = asyncio.Event()
        self._note_commits()

    def commitment(self, party: PartyId, opening: Opening) -> bytes:
        """Make this node's own commitment, once; returns its hash."""
        commit = commitment_hash(self._study, party, opening)
        self.commit(party, commit)
        # Also after a crash between the two.
        self.reveal(party, opening)
        return commit

    def has_committed(self, party: PartyId) -> bool:
        return party in self._by_party

    def commit(self, party: PartyId, commit: bytes) -> None:
        known = self._by_party.get(party)
        if known is None:
            self._store.save_commit(party, commit)
            self._by_party[party] = Commitment(commit)
            self._note_commits()
        elif known.hash != commit:
            raise PeerError("it committed to something else before: it lost its store, or plays two games")

    def reveal(self, party: PartyId, opening: Opening) -> None:
        known = self._by_party.get(party)
        if known is None or commitment_hash(self._study, party, opening) != known.hash:
            raise PeerError("it revealed something else than it committed to")
        if not (math.isfinite(opening.weight) and opening.weight > 0):
            raise PeerError(f"a weight of {opening.weight}, it must be a number > 0")
        if known.nonce is None:
            self._store.save_reveal(party, opening.nonce, opening.weight, opening.exchange)
            self._by_party[party] = Commitment(known.hash, opening.nonce, opening.weight, opening.exchange)

    def take_over(self, agreed: Mapping[PartyId, Commitment]) -> None:
        """What the parties agreed on before the session began, checked and revealed by all of them."""
        if self._by_party != agreed:
            self._store.save_agreement(agreed)
            self._by_party = dict(agreed)
        self._note_commits()

    def _note_commits(self) -> None:
        if not self.uncommitted:
            self.all_committed.set()

    @property
    def uncommitted(self) -> set[PartyId]:
        return set(range(self._parties)) - self._by_party.keys()

    @property
    def unrevealed(self) -> set[PartyId]:
        return {party for party, commitment in self._by_party.items() if commitment.nonce is None}

    def public_seed(self) -> Seed:
        """The public seed. All parties must have revealed."""
        labels = [
            label
            for _, commitment in sorted(self._by_party.items())
            for label in (commitment.nonce or b"", f"{commitment.weight!r}", commitment.exchange or b"")
        ]
        return Seed.public("schedule", self._study, *labels)

    def exchange_key(self, party: PartyId) -> bytes:
        """The public key of a party that has revealed it."""
        return self._by_party[party].exchange or b""

    def weights(self) -> NDArray[np.float64]:
        """The public weights, shape (n,). All parties must have revealed."""
        return np.array([commitment.weight for _, commitment in sorted(self._by_party.items())], dtype=np.float64)


async def agree(
    context: Context, commitments: Commitments, opening: Opening, start_timeout: float, encapsulated: ForPeer = lambda peer: b""
) -> None:
    """Returns when everybody holds everybody's nonce; ``encapsulated`` gives what goes to a party with the commitment.

    Raises ProtocolFailure with the missing after ``start_timeout`` seconds. Where the waits of a study have a timetable, it says
    until when, instead.
    """
    commit = commitments.commitment(context.party, opening)
    acknowledged: set[PartyId] = set()
    sending = [
        context.spawn(_send_opening(context, commitments, peer, Commit(0, commit, encapsulated(peer)), opening, acknowledged))
        for peer in context.others
    ]
    closed = asyncio.sleep(start_timeout) if context.closed is None else context.closed((int(Phase.AGREEMENT), 0))
    closing = context.spawn(closed)
    try:
        await _all_in(context, commitments, acknowledged, closing)
    finally:
        for task in (*sending, closing):
            task.cancel()
    if missing := _missing(context, commitments, acknowledged):
        reasons = "; ".join(f"{context.settings.names[party]}: {context.links[party].trouble}" for party in sorted(missing))
        until = f"within {start_timeout:g} s" if context.closed is None else "by its first deadline"
        raise ProtocolFailure(f"the study did not start {until} for want of {reasons}")


async def _send_opening(
    context: Context, commitments: Commitments, peer: PartyId, commit: Commit, opening: Opening, acknowledged: set[PartyId]
) -> None:
    link = context.links[peer]
    answer = await link.ask(commit)
    if answer.status == ACCEPTED:
        # An earlier opening would let the last party choose its nonce.
        await commitments.all_committed.wait()
        answer = await link.ask(Reveal(0, opening.nonce, opening.weight, opening.exchange))
    if answer.status == ACCEPTED:
        acknowledged.add(peer)
    else:
        link.trouble = f"peer refused: {printable(answer.reason)}"


def _missing(context: Context, commitments: Commitments, acknowledged: set[PartyId]) -> set[PartyId]:
    # Nobody reveals before all have committed: as long as commitments are missing, only their parties are reported.
    return commitments.uncommitted or commitments.unrevealed | (set(context.others) - acknowledged)


async def _all_in(context: Context, commitments: Commitments, acknowledged: set[PartyId], closing: asyncio.Task[None]) -> None:
    """Returns when nobody is missing, or it is too late."""
    reported: list[str] = []
    while (missing := _missing(context, commitments, acknowledged)) and not closing.done():
        names = context.names(missing)
        if names != reported:
            reported = names
            context.report(AgreementWaits(tuple(names)))
        context.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REPORT_SECONDS):
                await context.changed.wait()
