"""Dealing, adding, opening and correcting packed shares. Random cases are drawn from fixed seeds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.protocols.packed_sharing.correction import Conclusion, conclude
from quietmean.protocols.packed_sharing.packing import Elements, Packing, add, deal, expand, open_sums
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.randomness import Seed
from quietmean.studies.outcome.influence import checked_text
from support.effort import examples

SECRET = Seed.public("test of packed sums")
PRIMES = pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME])


def summed(packing: Packing, values: np.ndarray) -> dict[int, Elements]:
    """Every member's sum of all dealers' shares of ``values``, (dealers, size)."""
    count = packing.blocks(values.shape[1])
    held: dict[int, list[Elements]] = {member: [] for member in range(packing.members)}
    for dealer, numbers in enumerate(values):
        dealt = deal(packing, numbers, dealer, SECRET.derive(dealer))
        assert set(dealt.shares) | set(dealt.seeds) == set(held)
        assert not set(dealt.shares) & set(dealt.seeds)
        for member in held:
            own = dealt.shares.get(member)
            held[member].append(expand(packing, dealt.seeds[member], count) if own is None else own)
    return {member: add(packing, shares, count) for member, shares in held.items()}


def polynomial(prime: int, nodes: list[tuple[int, int]], at: int) -> int:
    """Lagrange's formula in Python's whole numbers."""
    total = 0
    for place, value in nodes:
        others = [other for other, _ in nodes if other != place]
        above = np.prod([at - other for other in others], dtype=object)
        below = np.prod([place - other for other in others], dtype=object)
        total += value * above * pow(int(below), -1, prime)
    return int(total) % prime


@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from([LARGE_PRIME, SMALL_PRIME]),
    st.integers(2, 12),
    st.integers(1, 8),
    st.integers(0, 11),
    st.integers(1, 30),
    st.integers(0, 10**6),
)
def test_any_t_sums_open_the_sum(prime: int, members: int, secrets: int, randoms: int, size: int, seed: int) -> None:
    randoms = min(randoms, members - 1)
    secrets = min(secrets, members - randoms)
    packing, rng = Packing(members, secrets, randoms, prime), np.random.default_rng(seed)
    values = rng.integers(-(prime // 2 // members), prime // 2 // members, (members, size))
    sums = summed(packing, values)
    chosen = rng.permutation(members)[: packing.threshold].tolist()
    opened = open_sums(packing, {member: sums[member] for member in chosen}, size)
    assert opened.tolist() == values.sum(axis=0).tolist()


def test_who_gets_a_seed_is_known_without_the_list() -> None:
    for members, randoms in ((2, 1), (7, 2), (9, 8)):
        packing = Packing(members, 1, randoms, LARGE_PRIME)
        for dealer, member in itertools.product(range(members), repeat=2):
            assert packing.is_seeded(dealer, member) == (member in packing.seeded(dealer))


@PRIMES
def test_shares_are_values_of_the_stated_polynomial(prime: int) -> None:
    packing, numbers = Packing(7, 3, 2, prime), np.array([5, -4, prime // 2, 1, -1, 0, 9])
    dealt = deal(packing, numbers, 6, SECRET)
    assert packing.seeded(6) == (0, 1)
    randoms = [expand(packing, dealt.seeds[member], 3) for member in (0, 1)]
    padded = [*numbers.tolist(), 0, 0]
    for block in range(3):
        # Numbers of a block are spread over the rows.
        nodes = [(1 + row, padded[row * 3 + block] % prime) for row in range(3)]
        nodes += [(4 + member, int(randoms[member][block])) for member in (0, 1)]
        for member, share in dealt.shares.items():
            assert int(share[block]) == polynomial(prime, nodes, 4 + member)


def test_the_same_secret_gives_the_same_shares_and_another_one_others() -> None:
    packing, numbers = Packing(5, 2, 2, LARGE_PRIME), np.arange(6)
    one, again, other = (deal(packing, numbers, 1, secret) for secret in (SECRET, SECRET, SECRET.derive("other")))
    assert one.seeds == again.seeds != other.seeds
    assert all((one.shares[member] == again.shares[member]).all() for member in one.shares)


def test_fewer_than_t_sums_open_nothing() -> None:
    packing = Packing(6, 2, 2, LARGE_PRIME)
    sums = summed(packing, np.ones((6, 4), dtype=np.int64))
    with pytest.raises(ValueError, match="3 sums do not determine"):
        open_sums(packing, {member: sums[member] for member in (0, 3, 5)}, 4)


# --- lies ---

MEMBERS, SECRETS, RANDOMS, SIZE = 16, 4, 3, 21


def lied_to(prime: int, liars: list[int], seed: int) -> tuple[Packing, np.ndarray, dict[int, Elements]]:
    """Sums of 16 members, of which ``liars`` tell others, each in some blocks only; and the true sum."""
    packing, rng = Packing(MEMBERS, SECRETS, RANDOMS, prime), np.random.default_rng(seed)
    values = rng.integers(-1000, 1000, (3, SIZE))
    sums = summed(packing, values)
    for liar in liars:
        changed = sums[liar].astype(np.int64)
        changed[rng.integers(0, changed.size)] += int(rng.integers(1, prime))
        sums[liar] = (changed % prime).astype(np.uint32)
    return packing, values.sum(axis=0), sums


@PRIMES
@pytest.mark.parametrize("lies", [0, 1, 3, 4])
def test_as_many_lies_as_planned_are_corrected_and_named(prime: int, lies: int) -> None:
    for seed in range(5):
        liars = sorted(np.random.default_rng(seed).permutation(MEMBERS)[:lies].tolist())
        packing, truth, sums = lied_to(prime, liars, seed)
        found = conclude(packing, sums, 4, SIZE, SECRET.derive(seed))
        assert found.total is not None
        assert found.total.tolist() == truth.tolist()
        assert found.wrong == tuple(liars)
        assert len(found.messages()) == lies


@PRIMES
@pytest.mark.parametrize(("corrected", "lies"), [(0, 1), (0, 5), (0, 9), (1, 2), (1, 8), (2, 7), (4, 5)])
def test_more_lies_than_planned_are_refused(prime: int, corrected: int, lies: int) -> None:
    """For certain as long as both together are k - T = 9 at most."""
    for seed in range(5):
        liars = np.random.default_rng(seed).permutation(MEMBERS)[:lies].tolist()
        packing, _, sums = lied_to(prime, liars, seed)
        found = conclude(packing, sums, corrected, SIZE, SECRET.derive(seed))
        assert found.total is None
        assert "do not fit together" in found.problem


@PRIMES
def test_uncoordinated_liars_are_refused_in_any_number(prime: int) -> None:
    packing, _, sums = lied_to(prime, list(range(MEMBERS)), 1)
    assert conclude(packing, sums, 2, SIZE, SECRET).total is None


def test_with_t_sums_nothing_can_be_told() -> None:
    packing, truth, sums = lied_to(LARGE_PRIME, [], 2)
    found = conclude(packing, {member: sums[member] for member in range(packing.threshold)}, 4, SIZE, SECRET)
    assert isinstance(found, Conclusion)
    assert found.total is not None
    assert found.total.tolist() == truth.tolist()


def test_a_sum_beyond_t_is_never_ignored() -> None:
    """The last member's sum is not needed, and wrong in one coordinate."""
    packing, _, sums = lied_to(LARGE_PRIME, [MEMBERS - 1], 3)
    kept = {member: sums[member] for member in [*range(packing.threshold), MEMBERS - 1]}
    assert conclude(packing, kept, 0, SIZE, SECRET).total is None


def test_a_dealers_wrong_share_is_named_as_the_members_or_a_dealers() -> None:
    packing, truth, sums = lied_to(LARGE_PRIME, [5], 4)
    found = conclude(packing, sums, 1, SIZE, SECRET)
    assert found.total is not None
    assert found.total.tolist() == truth.tolist()
    assert found.messages() == ("member 5's sum disagrees: it, or a dealer that dealt it a wrong share",)


def test_sentences_say_by_how_many_sums_a_result_was_checked() -> None:
    assert "unchecked: the result needs all 4 sums" in checked_text({"sums": 4, "needed": 4, "lies_excluded": 0})
    assert "One wrong sum would have been noticed" in checked_text({"sums": 5, "needed": 4, "lies_excluded": 1})
    assert "Up to 5 wrong sums" in checked_text({"sums": 9, "needed": 4, "lies_excluded": 5})
