"""Long vectors are dealt, added, opened and looked at in pieces: to the bit the same as at once, and in less memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from quietmean.core import pieces
from quietmean.core.input_domain import Ball, Box, InputDomain
from quietmean.core.mixtures import Simplex
from quietmean.graphs import ExecutionTrace
from quietmean.planning.release_bounds import ROUNDING, within_bounds
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.spec import ANY, BALL, LARGE_PRIME, SMALL_PRIME
from quietmean.randomness import SecureNoise, Seed
from quietmean.randomness.insecure import InsecurePopulationNoise
from quietmean.randomness.layered_gaussian import LayeredStream, layered_gaussian
from quietmean.sessions.clipping import shortened
from quietmean.transcript import run_lockstep

PARTIES = 5


def protocol(dimension: int, prime: int = LARGE_PRIME, region: str = ANY, secrets: int = 3) -> PackedSharing:
    document: dict[str, Any] = {
        "members": PARTIES,
        "colluding": 1,
        "colluding_members": 1,
        "secrets": secrets,
        "minimum": 3,
        "lies": 0,
        "gone": 0,
    }
    document |= {"ballots": 3, "prime": prime, "step": 2.0**-6, "sigma": 0.5, "domain": region, "clip": 1.0}
    return PackedSharing.parse(document | {"dimension": dimension}, PARTIES)


def machines(its: PackedSharing, *, secure: bool = True) -> list[Any]:
    schedule, insecure = its.draw_schedule(PARTIES, Seed.public("pieces")), InsecurePopulationNoise(4, PARTIES)
    values = np.random.default_rng(3).uniform(-0.2, 0.2, (PARTIES, its.dimension))
    sources = [SecureNoise(Seed.public("noise", party)) if secure else insecure.party(party) for party in range(PARTIES)]
    return [its.machine(schedule, party, values[party], 1.0, sources[party]) for party in range(PARTIES)]


def everything_said(its: PackedSharing, *, secure: bool = True) -> list[bytes]:
    """All contents of messages, and the releases."""
    said: list[bytes] = []
    trace = ExecutionTrace.everyone(its.rounds, PARTIES)
    ended = run_lockstep(
        machines(its, secure=secure),
        trace,
        lambda *given: True,
        lambda message, _: said.append(bytes(message.content)),
        refusing=True,
    )
    assert len(ended.releases) == PARTIES
    return said + [release.vector.tobytes() for _, release in sorted(ended.releases.items())]


# Of T = 4 sums of 5 one more checks them, which are all combined; of T = 5 none.
@pytest.mark.parametrize(("prime", "region", "secrets", "secure"), [
    (LARGE_PRIME, ANY, 3, True), (SMALL_PRIME, ANY, 3, True), (LARGE_PRIME, BALL, 3, True), (SMALL_PRIME, ANY, 4, False),
])  # fmt: skip
def test_a_study_says_the_same_in_pieces(
    prime: int, region: str, secrets: int, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last polynomial is not full, and no piece ends with a row of numbers.
    its = protocol(31, prime, region, secrets)
    whole = everything_said(its, secure=secure)
    monkeypatch.setattr(pieces, "PIECE", 4)
    assert everything_said(its, secure=secure) == whole


def test_dealing_takes_the_memory_of_residues_and_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 2**12)
    # What is computed at once, half a megabyte, hardly counts.
    size = 480_000
    (machine, *_) = machines(protocol(size, secrets=4))
    machine.start()
    tracemalloc.start()
    step = machine.start()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Four of five shares, of a byte a coordinate each; and four of residues while they are made.
    assert kept < 4.5 * size
    assert peak < 10 * size, peak / size
    machine.forget_value()
    assert step.state.round == 1


def test_noise_is_drawn_on_where_it_stopped() -> None:
    for scale in (2.0, 5e5):
        stream = LayeredStream(Seed.public("stream"), scale)
        drawn = np.concatenate([stream.next(size) for size in (9000, 1, 0, 5999)])
        assert drawn.tolist() == layered_gaussian(Seed.public("stream"), scale, 15_000).tolist()


def test_each_coordinate_is_held_against_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 3)
    domain = InputDomain((Box(size=7, low=-1.0, high=2.0), Simplex(size=4, scale=0.5), Ball(size=5, radius=3.0, centre=1.0)))
    low, high = domain.coordinate_bounds
    units, room = 10.0, 0.25
    # As far as it may be, and a little further, one coordinate after the other.
    far = units * (high - low) / 2 * (1 + ROUNDING) + room
    edge = units * (low + high) / 2 + far * (1 - 1e-12)
    assert within_bounds(domain, units, edge, 1.0, room)
    for place in range(domain.size):
        beyond = edge.copy()
        beyond[place] += 1e-6
        assert not within_bounds(domain, units, beyond, 1.0, room)
        beyond[place] = np.nan
        assert not within_bounds(domain, units, beyond, 1.0, room)
        assert not pieces.all_finite(beyond)
    assert pieces.all_finite(edge)


def test_a_long_vector_is_as_long_as_its_pieces_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(1).normal(size=(3, 50)) * np.array([[1e-3], [1e200], [1.0]])
    whole = shortened(rows, 2.0)
    monkeypatch.setattr(pieces, "PIECE", 7)
    np.testing.assert_allclose(shortened(rows, 2.0), whole, rtol=1e-14)
    assert np.linalg.norm(shortened(rows, 2.0), axis=1).max() <= 1.0
