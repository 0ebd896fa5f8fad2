"""What pairs share rests on ML-KEM besides X25519: the same at both ends, on disk before it is told or counts, whoever dies when.

Real participants and stores, in virtual time.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from property.test_node_faults import MEMORY, values_of
from quietmean.core.errors import InputError, PeerError
from quietmean.core.party import PartyId
from quietmean.node import LinkKeys, PairKeys
from quietmean.node.local.memory import MemoryLink
from quietmean.node.net import AnswerFrame, Start
from quietmean.node.session.session import StudySession
from quietmean.node.start.started import Pairing
from quietmean.node.storage import Store
from quietmean.planning import Plan, Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols.cordp_dme import CorDPDME
from quietmean.randomness import Encapsulated, ExchangeKey, Seed
from support.faults import Crash, FaultOutcome, FaultPlan, run_with_faults
from support.network import NetworkConditions

PARTIES = 3
ROUGH = NetworkConditions(seed=5, delay=0.05, loss=0.15, answer_loss=0.15, duplicates=0.2)
PRIVATE = [MLKEM768PrivateKey.from_seed_bytes(bytes([party]) * 64) for party in range(PARTIES)]
PUBLIC = {party: key.public_key().public_bytes_raw() for party, key in enumerate(PRIVATE)}
PAIRS = tuple(PairKeys(key, PUBLIC) for key in PRIVATE)


def plan() -> Plan:
    return calibrate(Target(parties=PARTIES, epsilon=1.0, delta=1e-6, dimension=2), CorDPDME())


@dataclass
class Seen:
    """By (party, other): all seeds that a party ever used, what was encapsulated, and what it had on disk when it counted."""

    seeds: dict[tuple[PartyId, PartyId], set[bytes]] = field(default_factory=dict)
    sent: dict[tuple[PartyId, PartyId], set[bytes]] = field(default_factory=dict)
    secrets: dict[tuple[PartyId, PartyId], Encapsulated] = field(default_factory=dict)
    contexts: set[str] = field(default_factory=set)
    private: dict[PartyId, list[ExchangeKey]] = field(default_factory=dict)


@contextmanager
def watched() -> Iterator[Seen]:
    seen, shared, ask, save = Seen(), StudySession._shared_seed, MemoryLink.ask, Store.save_encapsulated
    exchange, derive, load = ExchangeKey.__init__, ExchangeKey.shared_seed, Store.encapsulated

    def used(session: StudySession, other: PartyId) -> Seed:
        seed = shared(session, other)
        seen.seeds.setdefault((session._settings.party, other), set()).add(seed.secret)
        return seed

    async def asked(link: MemoryLink, request: Any, *more: Any, **options: Any) -> AnswerFrame:
        if isinstance(request, Start) and request.encapsulated:
            pair = link._party, link._peer
            seen.sent.setdefault(pair, set()).add(request.encapsulated)
            on_disk = seen.secrets.get(pair)
            assert on_disk is not None, "it told what is not on its disk"
            assert on_disk.ciphertext == request.encapsulated, "it told something else than is on its disk"
        return await ask(link, request, *more, **options)

    def kept(store: Store, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        save(store, encapsulated)
        seen.secrets |= {(int(store.path.stem), party): one for party, one in encapsulated.items()}

    def loaded(store: Store) -> dict[PartyId, Encapsulated]:
        # The process before this one may have died right after it was there.
        found = load(store)
        seen.secrets |= {(int(store.path.stem), party): one for party, one in found.items()}
        return found

    def derived(key: ExchangeKey, other: bytes, context: str, encapsulated: Encapsulated | None = None) -> Seed:
        seen.contexts.add(context)
        return derive(key, other, context, encapsulated)

    def made(key: ExchangeKey, seed: Seed | None = None, **more: Any) -> None:
        exchange(key, seed, **more)
        seen.private.setdefault(0, []).append(key)

    with (
        patch.object(StudySession, "_shared_seed", used),
        patch.object(MemoryLink, "ask", asked),
        patch.object(Store, "save_encapsulated", kept),
        patch.object(Store, "encapsulated", loaded),
        patch.object(ExchangeKey, "shared_seed", derived),
        patch.object(ExchangeKey, "__init__", made),
    ):
        yield seen


def run(faults: FaultPlan | None = None) -> tuple[FaultOutcome, Seen]:
    with watched() as seen, tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        outcome = run_with_faults(plan(), values_of(PARTIES), faults or FaultPlan(pairs=PAIRS), Path(directory))
        if len(outcome.results) == PARTIES:
            # Who has its result keeps none of it.
            kept = b"".join(path.read_bytes() for path in Path(directory).rglob("*") if path.is_file())
            assert not any(one.secret in kept for one in seen.secrets.values())
    return outcome, seen


def all_seeds(seen: Seen) -> set[bytes]:
    return {seed for each in seen.seeds.values() for seed in each}


def assert_shared(outcome: FaultOutcome, seen: Seen) -> None:
    assert sorted(outcome.results) == list(range(PARTIES))
    assert len({result.total_vector.tobytes() for result in outcome.results.values()}) == 1
    everybody = set(itertools.permutations(range(PARTIES), 2))
    assert set(seen.seeds) == everybody
    for one, other in everybody:
        # One seed, in all of its lives, and the other end's.
        assert len(seen.seeds[one, other]) == 1
        assert seen.seeds[one, other] == seen.seeds[other, one]
    assert len(all_seeds(seen)) == PARTIES * (PARTIES - 1) // 2
    # The lower number encapsulates, once for each pair.
    assert set(seen.sent) == {(one, other) for one, other in everybody if one < other}
    assert {len(told) for told in seen.sent.values()} == {1}


def found_without_ml_kem(seen: Seen) -> set[bytes]:
    """Pair seeds that somebody computes with all private keys of X25519, all that was encapsulated and all public keys."""
    told = {ciphertext for each in seen.sent.values() for ciphertext in each}
    guesses: list[Encapsulated | None] = [None]
    for ciphertext in told:
        guesses += [Encapsulated(secret, ciphertext) for secret in (b"", bytes(32), ciphertext[:32], *PUBLIC.values())]
    keys = seen.private[0]
    computed = {
        one.shared_seed(other.public, context, guess).secret
        for one, other in itertools.product(keys, keys)
        for context in seen.contexts
        for guess in guesses
    }
    return computed & all_seeds(seen)


def test_both_ends_have_one_seed_which_all_keys_of_x25519_do_not_give() -> None:
    outcome, seen = run()
    assert_shared(outcome, seen)
    assert found_without_ml_kem(seen) == set()
    # With the secrets of ML-KEM they do.
    known = {secret.secret for secret in seen.secrets.values()}
    assert len(known) == PARTIES * (PARTIES - 1) // 2


def test_that_finds_seeds_of_studies_whose_keys_are_x25519() -> None:
    outcome, seen = run(FaultPlan())
    assert sorted(outcome.results) == list(range(PARTIES))
    assert seen.sent == {}
    assert found_without_ml_kem(seen) == all_seeds(seen)


@pytest.mark.parametrize("secret", [None, b"", bytes(32)])
def test_that_finds_seeds_that_leave_the_secret_of_ml_kem_out(secret: bytes | None) -> None:
    derive = ExchangeKey.shared_seed

    def careless(key: ExchangeKey, other: bytes, context: str, encapsulated: Encapsulated | None = None) -> Seed:
        without = None if encapsulated is None or secret is None else Encapsulated(secret, encapsulated.ciphertext)
        return derive(key, other, context, without)

    with patch.object(ExchangeKey, "shared_seed", careless):
        _, seen = run()
    assert found_without_ml_kem(seen) == all_seeds(seen)


@pytest.mark.slow
@pytest.mark.parametrize("conditions", [NetworkConditions(), ROUGH])
def test_death_at_each_write_of_the_start(conditions: NetworkConditions) -> None:
    _, free = run()
    # Standings, and what each pair shares.
    writes = 2 + 2 * (PARTIES - 1) + (PARTIES - 1)
    assert free
    for party, write, committed in itertools.product(range(PARTIES), range(writes), (False, True)):
        if (party + write) % 2:
            # All parties are alike: of all of them each second place.
            continue
        faults = FaultPlan(conditions, {party: [Crash(write, committed)]}, round_timeout=8.0, pairs=PAIRS)
        assert_shared(*run(faults))


def test_what_is_told_before_it_is_on_disk_is_found() -> None:
    def careless(pairing: Pairing, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        pairing._known |= encapsulated

    with patch.object(Pairing, "_keep", careless), pytest.raises(AssertionError, match="not on its disk"):
        run()


def test_another_after_a_death_is_found() -> None:
    """A party that encapsulates anew after a death has other noise than the party that got the first one."""
    told = Pairing.ciphertext_for

    def anew(pairing: Pairing, peer: PartyId) -> bytes:
        pairing._known.pop(peer, None)
        return told(pairing, peer)

    with patch.object(Pairing, "ciphertext_for", anew), pytest.raises(AssertionError):
        assert_shared(*run(FaultPlan(ROUGH, {0: [Crash(6)]}, round_timeout=8.0, start_timeout=30.0, pairs=PAIRS)))


# --- what no correct party tells -------------------------------------------------------------------------------------------


class OfParty(Pairing):
    """Party 1's, in memory."""

    def __init__(self, keys: PairKeys | None = PAIRS[1]) -> None:
        self._keys, self._party, self._known = keys, 1, {}

    def _keep(self, encapsulated: Mapping[PartyId, Encapsulated]) -> None:
        self._known |= encapsulated


def test_a_commitment_without_and_something_where_nothing_is_due() -> None:
    pairing, told = OfParty(), b"e" * 1088
    pairing.check(0, told, commits=True)
    pairing.check(2, b"", commits=True)
    pairing.check(0, b"", commits=False)
    for sender, ciphertext, commits in ((0, b"", True), (2, told, True), (0, told, False)):
        with pytest.raises(PeerError, match="it committed with"):
            pairing.check(sender, ciphertext, commits=commits)
    with pytest.raises(PeerError, match="it committed with a secret"):
        OfParty(None).check(0, told, commits=True)
    OfParty(None).check(0, b"", commits=True)


def test_another_than_before_counts_only_before_the_commitment_does() -> None:
    pairing = OfParty()
    first, second = (MLKEM768PublicKey.from_public_bytes(PUBLIC[1]).encapsulate() for _ in range(2))
    pairing.take(0, first[1], committed=False)
    pairing.take(0, first[1], committed=True)
    with pytest.raises(PeerError, match="something else before"):
        pairing.take(0, second[1], committed=True)
    assert pairing._known[0].secret == first[0]
    # Of a later attempt.
    pairing.take(0, second[1], committed=False)
    assert pairing._known[0].secret == second[0]


def test_what_cannot_be_opened_is_refused() -> None:
    with pytest.raises(PeerError, match="cannot be opened"):
        OfParty()._opened(b"e" * 1087)


def test_keys_that_are_gone_are_named(tmp_path: Path) -> None:
    class Gone:
        keys, party = LinkKeys(pairs=PairKeys(None, PUBLIC)), 1

    with pytest.raises(InputError, match="were deleted with its result"):
        Pairing(Gone(), None)  # type: ignore[arg-type]


def test_nothing_secret_is_shown() -> None:
    shown = repr(PAIRS[0]) + repr(Encapsulated(b"secret" * 5, b"ciphertext")) + repr(vars(OfParty()))
    assert "secret" not in shown.replace("secret=", "")
    assert PRIVATE[0].private_bytes_raw().hex() not in shown
