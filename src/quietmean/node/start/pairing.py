"""What each two parties share besides X25519: in each pair the one with the lower number encapsulates to the other's ML-KEM key.

The keys are those of the entries, so nothing has to be asked for: what was encapsulated goes with the lower one's commitment.
Nobody reveals before all have committed, and nobody begins before all have revealed: who begins has it from all others, and
all others have it. It is on disk before it is sent, or before the commitment that it came with counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

from quietmean.core.errors import InputError, PeerError, named
from quietmean.core.party import PartyId
from quietmean.node.session import NodeSettings
from quietmean.node.storage import Store
from quietmean.randomness import Encapsulated


class Pairing:
    """One party's; nothing where the study has no such keys. Raises :class:`InputError` where those of this party are gone."""

    def __init__(self, settings: NodeSettings, store: Store) -> None:
        self._keys, self._party, self._store = settings.keys.pairs, settings.party, store
        if self._keys is not None and self._keys.own is None:
            raise InputError(
                "the keys of this party for this study were deleted with its result: give "
                f"{named('store')} with the one that has it"
            )
        self._known: dict[PartyId, Encapsulated] = {} if self._keys is None else store.encapsulated()

    def ciphertext_for(self, peer: PartyId) -> bytes:
        """What goes to a party with this one's commitment: the same whenever it is asked for."""
        if self._keys is None or peer < self._party:
            return b""
        if peer not in self._known:
            # All at once, in one write.
            later = [party for party in self._keys.public if party > self._party and party not in self._known]
            keys = {party: MLKEM768PublicKey.from_public_bytes(self._keys.public[party]) for party in later}
            self._keep({party: Encapsulated(*key.encapsulate()) for party, key in keys.items()})
        return self._known[peer].ciphertext

    def check(self, sender: PartyId, ciphertext: bytes, *, commits: bool) -> None:
        """Raises :class:`PeerError` for a commitment without what it encapsulated, or with something where nothing is due."""
        due = self._keys is not None and sender < self._party and commits
        if due != bool(ciphertext):
            what = "without" if due else "with"
            raise PeerError(f"it committed {what} a secret of ML-KEM-768 for this party: do both have the same sealed study?")

    def take(self, sender: PartyId, ciphertext: bytes, *, committed: bool) -> None:
        """Keep what came with a commitment, before that counts; ``committed``: it counts already.

        Raises :class:`PeerError` for another than before, then.
        """
        before = self._known.get(sender)
        if not ciphertext or (before is not None and before.ciphertext == ciphertext):
            return
        if committed:
            raise PeerError("it encapsulated something else before: it lost its store, or plays two games")
        self._keep({sender: Encapsulated(self._opened(ciphertext), ciphertext)})

    def _opened(self, ciphertext: bytes) -> bytes:
        own = None if self._keys is None else self._keys.own
        try:
            if own is None:
                raise ValueError
            return own.decapsulate(ciphertext)
        except ValueError:
            raise PeerError("it encapsulated something that cannot be opened") from None

    def _keep(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        self._store.save_encapsulated(encapsulated)
        self._known |= encapsulated
