"""A party as a client: pure functions of its secrets, its value and the messages of the aggregator.

Each answers one message of the aggregator. One that is not exactly as specified raises :class:`ContentError`: the party then
takes no further part. All secrets are derived anew, so that a restarted party sends the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from quietmean.core.errors import ProtocolFailure
from quietmean.core.party import NoiseSource, PartyId, Vector
from quietmean.protocols.publishing import ContentError
from quietmean.protocols.secagg import keys as wire
from quietmean.protocols.secagg.keys import (
    ADVERT_BYTES,
    PUBLIC_BYTES,
    SEALED_BYTES,
    SHARE_BYTES,
    Secrets,
    Words,
    adds,
    combine,
    commitment,
    is_usable,
    own_mask,
    pair_mask,
    put_on,
    seal,
    share,
    unseal,
)
from quietmean.protocols.secagg.spec import SecAggParameters, encode, wrap
from quietmean.randomness import ExchangeKey, Seed

# The part of an advert that clients receive: both public keys.
KEYS_BYTES = 2 * PUBLIC_BYTES


@dataclass(frozen=True, slots=True)
class ClientRules:
    """The parameters that all parties of a run share. ``label`` binds keys and ciphertexts to protocol and parameters."""

    parameters: SecAggParameters
    parties: int
    label: str


@dataclass(frozen=True, slots=True)
class Keyed:
    """The state after the key list: the parties ``listed`` (a set as bytes), and the public keys of the listed neighbours."""

    listed: bytes
    keys: bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """The state after the shares: the parties that shared (a set as bytes), and the shares that they sealed for this party."""

    sharing: bytes
    inbox: bytes


class Client:
    """A client of secure aggregation, with the messages that it sends and takes.

    ``neighbours``: the parties with which this one exchanges shares, without itself. The value has shape (d,).
    """

    def __init__(
        self, rules: ClientRules, party: PartyId, neighbours: Iterable[PartyId], value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        self._rules = rules
        self._party = party
        self._circle = tuple(sorted({*neighbours, party}))
        self._value = value
        self._weight = weight
        self._noise = noise

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets.of(self._noise)

    def advertise(self) -> bytes:
        """Round 1: two public keys and the commitment to b_u."""
        return self._secrets.advert

    def read_keys(self, content: bytes) -> Keyed:
        """Round 2: the parties that advertised keys, and the keys of those that are neighbours."""
        split = wire.set_size(self._rules.parties)
        listed = wire.read_set(content[:split], self._rules.parties)
        self._check_circle(listed, "keys")
        wire.split_items(content[split:], self._others(listed), KEYS_BYTES)
        return Keyed(content[:split], content[split:])

    def share_keys(self, keyed: Keyed) -> bytes:
        """Round 3: a share of s_u and one of b_u for each listed neighbour, sealed."""
        keys = self._keys(keyed)
        shares = self._own_shares(tuple(keys))
        sealed = []
        for other, key in keys.items():
            try:
                channel = self._secrets.channel
                sealed.append(seal(channel, key[:PUBLIC_BYTES], self._party, other, self._rules.label, *shares[other]))
            except ValueError:
                raise ContentError(f"the key list has a key of party {other} that is not valid") from None
        return b"".join(sealed)

    def read_shares(self, keyed: Keyed, content: bytes) -> Shared:
        """Round 4: the parties that shared, and the neighbours' sealed shares, which are opened later."""
        split = wire.set_size(self._rules.parties)
        sharing = wire.read_set(content[:split], self._rules.parties)
        if not sharing <= wire.read_set(keyed.listed, self._rules.parties):
            raise ContentError("it sent shares of parties that had advertised no keys")
        self._check_circle(sharing, "shares")
        wire.split_items(content[split:], self._others(sharing), SEALED_BYTES)
        return Shared(content[:split], content[split:])

    def masked_input(self, keyed: Keyed, shared: Shared) -> Words:
        """Round 5: y_u = x_u + PRG(b_u) + sum of the pairs' masks, modulo 2**bits, shape (words,)."""
        parameters = self._rules.parameters
        masked = encode(parameters, self._value, self._weight, self._noise)
        put_on(masked, own_mask(self._secrets.self_mask), parameters.bits)
        sharing, keys = wire.read_set(shared.sharing, self._rules.parties), self._keys(keyed)
        for other in self._others(sharing):
            try:
                mask = pair_mask(self._secrets.masking, keys[other][PUBLIC_BYTES:], self._rules.label)
            except ValueError:
                raise ContentError(f"the key list has a key of party {other} that is not valid") from None
            put_on(masked, mask, parameters.bits, adds(self._party, other))
        return wrap(masked, parameters.bits)

    def unmask(self, keyed: Keyed, shared: Shared, content: bytes) -> bytes:
        """Round 7: for each neighbour and itself one share, of b_v if its input arrived or of s_v if it did not. Never both."""
        arrived = self._read_request(shared, content)
        sharing = wire.read_set(shared.sharing, self._rules.parties)
        owners = [other for other in self._circle if other in sharing]
        inbox, keys = wire.split_items(shared.inbox, self._others(sharing), SEALED_BYTES), self._keys(keyed)
        answer = {}
        for owner in owners:
            if owner == self._party:
                # Here the request counts this client's input: any other was refused above.
                answer[owner] = self._own_shares((owner,))[owner][1].to_bytes(SHARE_BYTES, "big")
                continue
            key = keys[owner][:PUBLIC_BYTES]
            opened = unseal(self._secrets.channel, key, owner, self._party, self._rules.label, inbox[owner])
            if opened is not None:
                answer[owner] = opened[1] if owner in arrived else opened[0]
        return wire.write_shares(answer, owners)

    def _read_request(self, shared: Shared, content: bytes) -> frozenset[PartyId]:
        parties, split = self._rules.parties, wire.set_size(self._rules.parties)
        arrived, dropped = wire.read_set(content[:split], parties), wire.read_set(content[split:], parties)
        if arrived & dropped:
            raise ContentError("it sent a request for both secrets of a party")
        if arrived | dropped != wire.read_set(shared.sharing, parties):
            raise ContentError("it sent a request about others than those who shared")
        if self._party not in arrived:
            raise ContentError("this party's input did not arrive")
        self._check_circle(arrived, "inputs")
        return arrived

    def _check_circle(self, members: frozenset[PartyId], subject: str) -> None:
        parameters = self._rules.parameters
        if self._party not in members:
            raise ContentError(f"this party's {subject} did not arrive")
        if len(members) < parameters.minimum:
            raise ContentError(f"{subject} of {len(members)} parties arrived, fewer than the minimum of {parameters.minimum}")
        present = sum(other in members for other in self._circle)
        if present < parameters.threshold:
            raise ContentError(
                f"{subject} of {present} of this party's neighbours arrived, below the threshold {parameters.threshold}"
            )

    def _others(self, members: frozenset[PartyId]) -> list[PartyId]:
        return [other for other in self._circle if other in members and other != self._party]

    def _keys(self, keyed: Keyed) -> dict[PartyId, bytes]:
        return wire.split_items(keyed.keys, self._others(wire.read_set(keyed.listed, self._rules.parties)), KEYS_BYTES)

    def _own_shares(self, holders: tuple[PartyId, ...]) -> dict[PartyId, tuple[int, int]]:
        """The shares of s_u and b_u for each holder; party p has point p + 1."""
        secrets, threshold = self._secrets, self._rules.parameters.threshold
        points = [holder + 1 for holder in holders]
        mask_seed, self_seed = (Seed(secrets.polynomials.derive(name).secret) for name in ("mask key", "self mask"))
        mask_shares = share(secrets.mask_key, threshold, points, mask_seed)
        self_shares = share(secrets.self_mask, threshold, points, self_seed)
        return dict(zip(holders, zip(mask_shares, self_shares, strict=True), strict=True))


Members = frozenset[PartyId]


@dataclass(frozen=True)
class Aggregator:
    """The aggregator of secure aggregation, with the messages that it sends and takes.

    ``partners[u]``: the neighbours of u, in rising order.
    """

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

        Raises :class:`~quietmean.protocols.publishing.ContentError` for the wrong number of bytes.
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
        """Round 7: one share for each owner. Raises :class:`~quietmean.protocols.publishing.ContentError` for anything else."""
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
                    f"the shares of the self mask of party {party} do not fit together. Find the party that sent wrong ones."
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
                f"{len(shares)} shares of a secret of party {owner} arrived, below the threshold {threshold}. Run "
                "again, too many parties dropped out."
            )
        return combine(shares, threshold)

    def _remove_pair_masks(
        self, total: Words, party: PartyId, remaining: list[PartyId], adverts: Mapping[PartyId, bytes], secret: bytes | None
    ) -> None:
        key = ExchangeKey(Seed(secret)) if secret is not None else None
        if key is None or key.public != adverts[party][PUBLIC_BYTES:KEYS_BYTES]:
            raise ProtocolFailure(
                f"the shares of the mask key of party {party} do not fit together. Find the party that sent wrong ones."
            )
        for other in remaining:
            mask = pair_mask(key, adverts[other][PUBLIC_BYTES:KEYS_BYTES], self.rules.label)
            # Removes what ``other`` added.
            put_on(total, mask, self.rules.parameters.bits, not adds(other, party))
