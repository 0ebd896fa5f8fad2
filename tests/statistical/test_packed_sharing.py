"""Packed sharing: errors, uniform shares, and low bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from quietmean.planning.calibrate import calibrate
from quietmean.privacy import mu_of_budget
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.packing import (
    Elements,
    Packing,
    add,
    deal,
    deal_points,
    expand,
    null_vector,
    padded,
    product,
)
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.protocols.target import Target
from quietmean.randomness import BitStream, Seed
from quietmean.simulation import simulate
from support.packed_bars import BARS

# -- Errors of packed sharing: simulated is what plans predict. Error rates are stated; seeds are fixed and printed by pytest.
SEED, EPSILON, DELTA = 20_261_122, 1.0, 1e-6


def check(parties: int, colluding: int, dropouts: float, bar: float, runs: int, dimension: int, scale: float = 1.0) -> None:
    """Simulated error within 3 % of the prediction or 3 standard errors: missed by chance with probability 0.003 at most.

    The error over the curator's is below the bar, up to the same. ``scale``: the noise is so much larger than planned.
    """
    from dataclasses import replace

    target = Target(parties, EPSILON, DELTA, dimension, 1.0, colluding, dropouts)
    plan = calibrate(target, PackedSharing())
    assert isinstance(plan.protocol, PackedSharing)
    wrong = replace(plan, protocol=replace(plan.protocol, sigma=scale * plan.protocol.sigma))
    found, predicted = simulate(wrong, runs=runs, seed=SEED), plan.prediction["mse_noise"] + plan.prediction["mse_dropout_bias"]
    central = (1 / mu_of_budget(EPSILON, DELTA) / parties) ** 2
    print(parties, colluding, dropouts, found.mse / central, predicted / central, found.mse_standard_error / central, SEED)
    allowed = max(0.03 * predicted, 3 * found.mse_standard_error)
    assert abs(found.mse - predicted) < allowed
    assert found.mse < bar * central + allowed
    assert predicted < bar * central


def test_simulated_error_is_as_predicted() -> None:
    """60 runs of 200 coordinates, a standard error of 1.4 %; 8 % more noise is noticed."""
    check(10, 1, 0.1, 1.31, 60, 200)
    with pytest.raises(AssertionError):
        check(10, 1, 0.1, 1.31, 60, 200, scale=1.08)


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "colluding", "dropouts", "bar"), [bar for bar in BARS if bar[:3] != (10, 1, 0.1)])
def test_simulated_errors_in_all_cells(parties: int, colluding: int, dropouts: float, bar: float) -> None:
    """60 runs of 500 coordinates, a standard error of about 1 %."""
    check(parties, colluding, dropouts, bar, 60, 500)


@pytest.mark.slow
def test_too_few_inputs_are_as_rare_as_planned() -> None:
    """200 runs at 20 % dropouts: each has no result with chance 6e-4, so that 4 or more occur with probability 1e-5."""
    target = Target(100, EPSILON, DELTA, 1, 1.0, 10, 0.2)
    found = simulate(calibrate(target, PackedSharing()), runs=200, seed=SEED)
    assert len(found.estimates) > 196
    assert np.isfinite(found.estimates).all()


# -- Field elements and published sums of packed sharing look uniform: chi-squared tests at up to 1e7 samples.
LEAST_P = 1e-7
SHARES, SUMS = "shares", "sums"
# Numbers of one dealing.
_CHUNK = 500_000
SIZES = [pytest.param(200_000), pytest.param(10_000_000, marks=pytest.mark.slow)]
PRIMES = pytest.mark.parametrize("prime", [LARGE_PRIME, SMALL_PRIME])
# Members 0..5, two secrets, and two random points a polynomial.
MEMBERS, SECRETS, RANDOMS, DEALERS = 6, 2, 2, 3
Dealing = Callable[[Packing, NDArray[np.int64], int, Seed], dict[int, Elements]]


class Histogram:
    """Counts of residues in cells of equal width, and by their last bits."""

    def __init__(self, prime: int) -> None:
        self._prime = prime
        self._cells = prime if prime == SMALL_PRIME else 4096
        bounds = -(-np.arange(self._cells + 1, dtype=np.int64) * prime // self._cells)
        ends = np.arange(256)
        self._sizes = np.diff(bounds), (prime - ends + 255) // 256
        self._counts = np.zeros(self._cells, dtype=np.int64), np.zeros(256, dtype=np.int64)

    def put(self, residues: Elements) -> None:
        numbers = residues.astype(np.int64)
        for counts, cells in zip(self._counts, (numbers * self._cells // self._prime, numbers % 256), strict=True):
            counts += np.bincount(cells, minlength=counts.size)

    def p_values(self) -> list[float]:
        """Of Pearson's test, for both ways of counting."""
        found = []
        for counts, sizes in zip(self._counts, self._sizes, strict=True):
            expected = counts.sum() * sizes / self._prime
            found.append(float(stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)))
        return found


def honest(packing: Packing, numbers: NDArray[np.int64], dealer: int, secret: Seed) -> dict[int, Elements]:
    """Each member's share, as the protocol deals it."""
    dealt, count = deal(packing, numbers, dealer, secret), packing.blocks(numbers.size)
    return dict(dealt.shares) | {member: expand(packing, seed, count) for member, seed in dealt.seeds.items()}


def with_randoms(draw: Callable[[BitStream, int], Elements], *, all_the_same: bool = False) -> Dealing:
    """Dealing with other random points. ``all_the_same``: from one seed where each should have its own."""

    def dealing(packing: Packing, numbers: NDArray[np.int64], dealer: int, secret: Seed) -> dict[int, Elements]:
        count = packing.blocks(numbers.size)
        labels = [0 if all_the_same else place for place in range(packing.randoms)]
        drawn = [draw(BitStream(secret.derive("points", label)), count) for label in labels]
        rows = deal_points(packing, padded(packing, numbers.size, [numbers]), np.array(drawn, dtype=np.uint32), dealer)
        shares = dict(zip(packing.unseeded(dealer), rows, strict=True))
        return shares | dict(zip(packing.seeded(dealer), drawn, strict=True))

    return dealing


def watched(packing: Packing, prime: int) -> tuple[list[int], Elements]:
    """Two members without seeds of dealer 0, and a combination of their shares that says whether both random points are equal."""
    members = list(packing.unseeded(0))[1:3]
    # What a polynomial has there that is 0 at all secrets, and 1 at both random points: it is taken out.
    unit, zero = np.ones((packing.randoms, 1), dtype=np.uint32), np.zeros((packing.secrets, 1), dtype=np.uint32)
    rows = dict(zip(packing.unseeded(0), deal_points(packing, zero, unit, 0), strict=True))
    combination = null_vector(np.array([[rows[member][0] for member in members]], dtype=np.uint32), prime)
    assert combination is not None
    return members, combination


def samples(what: str, prime: int, size: int, dealing: Dealing) -> Iterator[list[Elements]]:
    """What each member has, block for block, and the combination of what two have."""
    packing = Packing(MEMBERS, SECRETS, RANDOMS, prime)
    members, combination = watched(packing, prime)
    seed = Seed.public("uniform", what, prime)
    for chunk in range(-(-size // _CHUNK)):
        count = min(_CHUNK, size - chunk * _CHUNK)
        # Fixed inputs of little variety, where all randomness is of the shares.
        numbers = np.repeat(np.array([7, -3]), count)
        dealers = range(1) if what == SHARES else range(DEALERS)
        # All dealers deal as the first: so their seeds are at the same members.
        dealt = [dealing(packing, numbers, 0, seed.derive(chunk, dealer)) for dealer in dealers]
        held = [add(packing, [shares[member] for shares in dealt], count) for member in range(MEMBERS)]
        pair = np.array([held[member] for member in members])
        yield [*held, product(combination[None, :], pair, prime)[0]]


def smallest_p(what: str, prime: int, size: int, dealing: Dealing = honest) -> float:
    """Of all tests: each member's numbers, and the combination of two members'."""
    histograms = [Histogram(prime) for _ in range(MEMBERS + 1)]
    for chunk in samples(what, prime, size, dealing):
        for histogram, numbers in zip(histograms, chunk, strict=True):
            histogram.put(numbers)
    found = [p for histogram in histograms for p in histogram.p_values()]
    assert len(found) <= 20
    return min(found)


@pytest.mark.parametrize("size", SIZES)
@PRIMES
@pytest.mark.parametrize("what", [SHARES, SUMS])
def test_field_elements_are_uniform(what: str, prime: int, size: int) -> None:
    found = smallest_p(what, prime, size)
    print(f"{what} modulo {prime}, {size} samples: smallest p {found:.2g}")
    assert found > LEAST_P


def residues(stream: BitStream, count: int) -> Elements:
    return (stream.words(count) % np.uint64(LARGE_PRIME)).astype(np.uint32)


@pytest.mark.parametrize("what", [SHARES, SUMS])
def test_one_seed_for_two_random_points_is_found(what: str) -> None:
    """Each member's numbers alone look uniform, the combination of two does not."""
    assert smallest_p(what, LARGE_PRIME, 100_000, with_randoms(residues)) > LEAST_P
    assert smallest_p(what, LARGE_PRIME, 100_000, with_randoms(residues, all_the_same=True)) < LEAST_P


@pytest.mark.slow
def test_short_words_are_found() -> None:
    """16-bit words modulo 65521: the first 15 of the residues come twice as often, 12 standard deviations in 2e7 samples."""

    def draw(stream: BitStream, count: int) -> Elements:
        return (stream.words(count) % np.uint64(2**16) % np.uint64(SMALL_PRIME)).astype(np.uint32)

    assert smallest_p(SHARES, SMALL_PRIME, 20_000_000, with_randoms(draw)) < LEAST_P


def test_a_bit_that_is_missing_is_found() -> None:
    """30-bit words where there should be 31."""

    def draw(stream: BitStream, count: int) -> Elements:
        return (stream.words(count) % np.uint64(2**30)).astype(np.uint32)

    assert smallest_p(SHARES, LARGE_PRIME, 100_000, with_randoms(draw)) < LEAST_P


def test_a_bias_of_a_percent_is_found() -> None:
    """One random point in a hundred is below a tenth of p."""

    def draw(stream: BitStream, count: int) -> Elements:
        chosen = stream.uniform(count) < 0.01
        numbers = residues(stream, count)
        return np.where(chosen, numbers // np.uint32(10), numbers)

    assert smallest_p(SHARES, LARGE_PRIME, 1_000_000, with_randoms(draw)) < LEAST_P
