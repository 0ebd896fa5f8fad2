"""Packed sharing: what a party's dealing costs, beside a client of our secagg-plus for the same task in the same run.

100 parties, 1e5 coordinates in a box, epsilon 1, 10 % dropouts. Milliseconds are processor time of one thread, the best of five:
rounding, noise, coefficient matrix, random points and all shares; the sampler's table is made before, once a study. Opening is
the sum of 100 shares and the interpolation of 1e5 numbers from T sums. What Flower's SecAgg+ takes is in ``test_secagg.py``.

A second table has the same for 30 to 3000 parties, with the memory that it takes; a third one receipts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from benchmarks.measuring import megabytes, milliseconds

from quietmean.core.workers import one_thread
from quietmean.graphs import ExecutionTrace, churn
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import encode
from quietmean.protocols.packed_sharing.packing import Dealt, Packing, add, deal_residues, expand, open_sums, padded
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME, SMALL_PRIME
from quietmean.protocols.target import Target
from quietmean.randomness import Seed
from quietmean.randomness.noise import SecureNoise
from support.bars import Bar

PARTIES, DIMENSION = 100, 100_000
# Milliseconds for dealing with noise, by the number of colluders.
BARS = {10: 15.0, 50: 25.0}


def target(colluding: int, parties: int = PARTIES) -> Target:
    return Target(parties, 1.0, 1e-6, DIMENSION, 1.0, colluding, 0.1)


def planned(colluding: int, prime: int, parties: int = PARTIES) -> PackedSharing:
    found = PackedSharing.read({"prime": prime}).design(target(colluding, parties)).protocol
    assert isinstance(found, PackedSharing)
    return found


@pytest.mark.slow
def test_dealing(table: Callable[[str], None], bar: Bar) -> None:
    """The bars are for an idle machine: 15 ms with 10 colluders, 25 ms with 50."""
    value = np.random.default_rng(1).random(DIMENSION) / np.sqrt(DIMENSION)
    lines = []
    with one_thread():
        for colluding, most in BARS.items():
            for prime in (LARGE_PRIME, SMALL_PRIME) if colluding == 10 else (LARGE_PRIME,):
                dealt, opened, own = costs(planned(colluding, prime), value)
                lines.append(
                    f"c = {colluding}, modulo {prime:<10} deal {dealt:6.1f} ms  of it noise {own:5.1f}  open {opened:6.1f} ms"
                )
                bar(f"dealing with {colluding} colluders modulo {prime}, ms", dealt, most)
        lines.append(f"secagg-plus, masked input with noise      {masked_input(value):6.1f} ms")
    for line in lines:
        table(line)


def costs(parameters: PackedSharing, value: np.ndarray) -> tuple[float, float, float]:
    """Dealing with noise, adding up and opening, and the noise and rounding alone."""
    packing, noise = Packing.of(parameters), SecureNoise(Seed.public("benchmark"))
    secret = Seed(noise.secret("shares", 0))

    def dealing() -> Dealt:
        return deal_residues(packing, padded(packing, DIMENSION, encode(parameters, value, 1.0, noise)), 0, secret)

    dealt = dealing()
    blocks = packing.blocks(DIMENSION)
    held = {member: dealt.shares.get(member) for member in range(parameters.members)}
    shares = {member: expand(packing, dealt.seeds[member], blocks) if share is None else share for member, share in held.items()}

    def opening() -> None:
        add(packing, [shares[0]] * parameters.members, blocks)
        open_sums(packing, shares, DIMENSION)

    return milliseconds(dealing), milliseconds(opening), milliseconds(lambda: list(encode(parameters, value, 1.0, noise)))


def masked_input(value: np.ndarray) -> float:
    """The noisy, masked vector of a client of secagg-plus: rotation, noise, and a mask for each of its neighbours."""
    from quietmean.protocols.secagg.spec import encode as encode_input

    plan = calibrate(target(10), get_protocol("secagg-plus")())
    protocol: Any = plan.protocol
    noise = SecureNoise(Seed.public("benchmark"))
    stream = Seed.public("masks")

    def work() -> None:
        from quietmean.randomness import BitStream

        masked = encode_input(protocol, value, 1.0, noise)
        for other in range(protocol.neighbours + 1):
            masked = masked + BitStream(stream.derive(other)).ring(protocol.bits, masked.size)

    return milliseconds(work)


@pytest.mark.slow
def test_dealing_as_parties_grow(table: Callable[[str], None]) -> None:
    """One in ten colludes, one in ten leaves. A member holds n shares: as many numbers as n vectors have, over l."""
    value = np.random.default_rng(1).random(DIMENSION) / np.sqrt(DIMENSION)
    with one_thread():
        for parties in (30, 100, 300, 1000, 3000):
            parameters = planned(parties // 10, LARGE_PRIME, parties)
            dealt, opened, own = costs(parameters, value)
            packing, noise = Packing.of(parameters), SecureNoise(Seed.public("benchmark"))
            secret = Seed(noise.secret("shares", 0))

            def dealing(its: PackedSharing, packing: Packing, noise: SecureNoise, secret: Seed) -> Dealt:
                return deal_residues(packing, padded(packing, DIMENSION, encode(its, value, 1.0, noise)), 0, secret)

            memory = megabytes(partial(dealing, parameters, packing, noise, secret))
            sent = parties * packing.blocks(DIMENSION) * parameters.word_bytes / 1e6
            table(
                f"n = {parties:<5} T = {parameters.threshold:<5} deal {dealt:7.1f} ms  of it noise {own:5.1f}"
                f"  open {opened:7.1f} ms  memory {memory:6.1f} MB  shares of all dealers {sent:5.2f} MB"
            )


@pytest.mark.slow
def test_receipts_as_parties_grow(table: Callable[[str], None]) -> None:
    """Receipts of a usual run in which one in ten leaves: nothing is sent after the fifth round."""
    for parties in (30, 100, 300, 1000):
        protocol = planned(parties // 10, LARGE_PRIME, parties)
        schedule = protocol.draw_schedule(parties, Seed.public("benchmark"))
        trace = churn(Seed.public("churn"), schedule.rounds, parties, permanent=0.1, within=protocol.traits.usual_rounds)
        lost = np.zeros(schedule.neighbours.shape, dtype=np.bool_)
        lost[protocol.traits.usual_rounds :] = True
        history = ExecutionTrace(trace.online, lost).all_handed(schedule)
        execution = Execution(protocol, schedule, history, 1.0, np.ones(parties))
        begun = time.perf_counter()
        raw = json.dumps(execution.to_json())
        written = time.perf_counter()
        Execution.from_json(json.loads(raw))
        table(
            f"n = {parties:<5} {len(raw) / 1e3:8.1f} kB  {schedule.out_degree.sum():>9} messages in the schedule"
            f"  write {written - begun:5.2f} s  read {time.perf_counter() - written:5.2f} s"
        )
        assert len(raw) < 150 * parties
