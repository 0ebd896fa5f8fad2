"""What the aggregator computes: it forwards keys and shares, and removes the masks from the sum. It sees only masked inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import PartyId
from quietmean.protocols.secagg import wire
from quietmean.protocols.secagg.client import KEYS_BYTES, ClientRules
from quietmean.protocols.secagg.encoding import wrap
from quietmean.protocols.secagg.keys import (
    ADVERT_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    Words,
    adds,
    commitment,
    is_usable,
    own_mask,
    pair_mask,
    put_on,
)
from quietmean.protocols.secagg.shamir import combine
from quietmean.randomness import ExchangeKey, Seed

Members = frozenset[PartyId]


@dataclass(frozen=True)
class Aggregator:
    """``partners[u]``: the neighbours of u, in rising order."""

    rules: ClientRules
    partners: tuple[tuple[PartyId, ...], ...]

    def accept_advert(self, advert: bytes, own: ExchangeKey) -> bool:
        """Is this an advert with valid public keys? ``own``: any key, to test them with."""
        if len(advert) != ADVERT_BYTES:
            return False
        return all(is_usable(advert[begin : begin + PUBLIC_BYTES], own) for begin in (0, PUBLIC_BYTES))

    def key_list(self, party: PartyId, adverts: Mapping[PartyId, bytes]) -> bytes:
        """Round 2, for one party."""
        keys = b"".join(adverts[other][:KEYS_BYTES] for other in self.partners[party] if other in adverts)
        return wire.write_set(adverts, self.rules.parties) + keys

    def read_sealed(self, party: PartyId, listed: Members, content: bytes) -> dict[PartyId, bytes]:
        """Round 3: the shares that ``party`` sealed, by receiver.

        Raises :class:`~quietmean.protocols.content.ContentError` for the wrong number of bytes.
        """
        return wire.split_items(content, [other for other in self.partners[party] if other in listed], SEALED_BYTES)

    def forwarded(self, party: PartyId, sealed: Mapping[PartyId, Mapping[PartyId, bytes]]) -> bytes:
        """Round 4, for one party; ``sealed`` by sender and receiver."""
        inbox = b"".join(sealed[other][party] for other in self.partners[party] if other in sealed)
        return wire.write_set(sealed, self.rules.parties) + inbox

    def request(self, sharing: Members, arrived: Members) -> bytes:
        """Round 6: the parties whose inputs arrived, and those whose inputs did not."""
        return wire.write_set(arrived, self.rules.parties) + wire.write_set(sharing - arrived, self.rules.parties)

    def read_unmasking(self, party: PartyId, sharing: Members, content: bytes) -> dict[PartyId, int]:
        """Round 7: one share for each owner. Raises :class:`~quietmean.protocols.content.ContentError` for anything else."""
        return wire.read_shares(content, [owner for owner in sorted({*self.partners[party], party}) if owner in sharing])

    def unmask(
        self,
        total: Words,
        sharing: Members,
        arrived: Members,
        adverts: Mapping[PartyId, bytes],
        answers: Mapping[PartyId, Mapping[PartyId, int]],
    ) -> Words:
        """The sum of the inputs that arrived, modulo 2**bits; ``total``, shape (words,), is that of the masked ones.

        Raises :class:`ProtocolFailure` if a needed secret has fewer shares than the threshold, or shares that are false.
        """
        bits = self.rules.parameters.bits
        total = total.copy()
        for party in sorted(arrived):
            seed = self._open(party, answers)
            if seed is None or commitment(seed) != adverts[party][KEYS_BYTES:]:
                raise ProtocolFailure(
                    f"the shares of the self mask of party {party} do not fit together: some party sent wrong ones"
                )
            put_on(total, own_mask(seed), bits, add=False)
        for party in sorted(sharing - arrived):
            remaining = [other for other in self.partners[party] if other in arrived]
            if remaining:
                self._remove_pair_masks(total, party, remaining, adverts, self._open(party, answers))
        return wrap(total, bits)

    def _open(self, owner: PartyId, answers: Mapping[PartyId, Mapping[PartyId, int]]) -> bytes | None:
        threshold = self.rules.parameters.threshold
        shares = {holder + 1: answer[owner] for holder, answer in answers.items() if owner in answer}
        if len(shares) < threshold:
            raise ProtocolFailure(
                f"{len(shares)} shares of a secret of party {owner} arrived, below the threshold {threshold}: "
                "too many parties dropped out, run again"
            )
        return combine(shares, threshold)

    def _remove_pair_masks(
        self, total: Words, party: PartyId, remaining: list[PartyId], adverts: Mapping[PartyId, bytes], secret: bytes | None
    ) -> None:
        key = ExchangeKey(Seed(secret)) if secret is not None else None
        if key is None or key.public != adverts[party][PUBLIC_BYTES:KEYS_BYTES]:
            raise ProtocolFailure(f"the shares of the mask key of party {party} do not fit together: some party sent wrong ones")
        for other in remaining:
            mask = pair_mask(key, adverts[other][PUBLIC_BYTES:KEYS_BYTES], self.rules.label)
            # Removes what ``other`` added.
            put_on(total, mask, self.rules.parameters.bits, not adds(other, party))
