"""Everything that is read from others, on mutated and random bytes: refused as such, at bounded cost, and nothing else happens.

Seeds are printed; a case is a function of its seed and number.
"""

from __future__ import annotations

import asyncio
import struct
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.core.codec import dump_state, load_state
from quietmean.core.errors import PeerError, ProtocolFailure
from quietmean.core.grid import on_grid
from quietmean.core.party import Message
from quietmean.node.net import stream, wire
from quietmean.node.net.stream import decode_vector, read_frame
from quietmean.node.session import logs
from quietmean.protocols.inca import IncA
from quietmean.protocols.traits import ANY_DOMAIN
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.testing.strategies import PARAMETERS, executions
from support.effort import examples

PARTIES, ROUNDS, DIMENSION, CONTENT = 5, 4, 3, 40
LIMITS = wire.Limits.of_study(PARTIES, ROUNDS, DIMENSION, CONTENT)
VECTOR = bytes(stream.encode_vector(np.array([1.0, -2.0, 1e-300])))
GRID = 2.0**-20
GRID_LIMITS = wire.Limits.of_study(PARTIES, ROUNDS, DIMENSION, CONTENT, GRID)
SHORT = bytes(stream.encode_vector(np.array([1.0, -2.0, 0.25]), GRID))
LOG = logs.encode_log(logs.PartyLog((1, 2), ((1, 0), (2, 3)), ((2, 4),), (0, 1), ((1, 2, 3),)))
FRAMES: list[tuple[wire.AnyFrame, bytes]] = [
    (wire.Hello(1, 2, "ab" * 32), b""),
    (wire.KeyOffer(b"n" * 32, b"k" * 1184), b""),
    (wire.KeyAnswer(b"n" * 32, b"c" * 1088, b"s" * 64), b""),
    (wire.KeyProof(b"s" * 64), b""),
    (wire.Welcome(1, 3), b""),
    (wire.Refused("study differs"), b""),
    (wire.Check(2), b""),
    (wire.Differs("study differs", {"columns.age.high": b"12345678", "epsilon": b"abcdefgh"}), b""),
    (wire.Readiness(2, "0.1.0", b"r" * 32, b"s" * 32, b"p" * 32, True, 1, 2, 1.7e9), b""),
    (wire.Start(7, 1, (), b"", b"c" * 32), b""),
    (wire.Start(8, 2, (0, 2), b"g" * 64, b"c" * 32, (wire.Revealed(2, b"n" * 32, 2.5, b"x" * 32),), True), b""),
    (wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", DIMENSION), VECTOR),
    (wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", 0), b"content"),
    (wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", DIMENSION, width=4), SHORT),
    (wire.CancelTransfer(10, 1, 2), b""),
    (wire.ConfirmTransfer(11, 1, 2), b""),
    (wire.ResendRequest(12, 2, 1), b""),
    (wire.Heartbeat(12, 1, 2), b""),
    (wire.Log(13), LOG),
    (wire.AnswerFrame(13, "no", 3, 0, "why"), b""),
]
VALID = [wire.encode_frame(frame, len(payload)) + payload for frame, payload in FRAMES]
HEADERS = [wire.encode_frame(frame)[8:] for frame, _ in FRAMES]
# Bytes with a meaning in MessagePack: containers, long lengths, extremes of numbers, invalid UTF-8, what is never used.
TELLING = b"\x00\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc4\xc6\xc9\xca\xcb\xcf\xd3\xd9\xdb\xdc\xdd\xde\xdf\xe0\xff"


class Mutator:
    """Valid inputs, cut, spliced, repeated and overwritten; or random bytes. Fast: numbers are drawn a block at a time."""

    def __init__(self, seed: int, block: int = 50_000) -> None:
        self._stream = BitStream(insecure_seed(seed, "fuzz"))
        self._block = block
        self._numbers = self._draw()

    def _draw(self) -> Iterator[int]:
        while True:
            yield from self._stream.integers(2**30, self._block).tolist()

    def case(self, valid: list[bytes]) -> bytes:
        draw = self._numbers.__next__
        kind = draw() % 16
        if kind == 0:
            return b"".join(draw().to_bytes(4, "big") for _ in range(draw() % 40))
        raw = bytearray(valid[draw() % len(valid)])
        if kind == 1:
            return bytes(raw[: draw() % (len(raw) + 1)])
        if kind == 2:
            other = valid[draw() % len(valid)]
            return bytes(raw[: draw() % len(raw)] + other[draw() % len(other) :])
        if kind == 3:
            # Nested or repeated without end.
            raw[draw() % len(raw) :] = bytes([TELLING[draw() % len(TELLING)]]) * (draw() % 600)
            return bytes(raw)
        for _ in range(1 + draw() % 4):
            place = draw() % len(raw)
            change = draw() % 4
            if change == 0:
                raw[place] ^= 1 << draw() % 8
            elif change == 1:
                raw[place] = TELLING[draw() % len(TELLING)]
            elif change == 2:
                raw.insert(place, draw() % 256)
            elif len(raw) > 1:
                del raw[place]
        return bytes(raw)


def framed(raw: bytes) -> bytes:
    """A mutated header under lengths that fit it, or the largest that are told of."""
    return struct.pack(">II", len(raw), 0) + raw


class Reading:
    """Reads as a connection does, without a running loop: all bytes are there, so nothing is ever waited for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def frame(self, raw: bytes, limits: wire.Limits) -> str:
        """What became of it. Anything but a frame, a PeerError or an early end is raised."""
        stream = asyncio.StreamReader(loop=self._loop)
        stream.feed_data(raw)
        stream.feed_eof()
        reading = read_frame(stream, limits)
        try:
            reading.send(None)
        except StopIteration as stop:
            frame, payload, _ = stop.value
        except PeerError:
            return "refused"
        except EOFError:
            return "ended early"
        try:
            # As the inbox and the session do.
            if isinstance(frame, wire.Transfer):
                wire.check_finite(frame.weight, "weight")
                grid, raw = GRID if limits.short else 0.0, payload[: frame.width * frame.dimension]
                assert decode_vector(raw, frame.width, grid).size in (0, DIMENSION)
            elif isinstance(frame, wire.Log):
                logs.decode_log(payload, PARTIES, ROUNDS)
        except PeerError:
            return "refused by its content"
        return type(frame).__name__


def log_case(raw: bytes) -> str:
    try:
        log = logs.decode_log(raw, PARTIES, ROUNDS)
    except PeerError:
        return "refused"
    assert all(1 <= round_ <= ROUNDS for round_ in log.online)
    return "log"


def vector_case(raw: bytes) -> str:
    # Only whole numbers of values reach it: the frame's limits see to that.
    try:
        vector = decode_vector(raw[: len(raw) // 8 * 8])
    except PeerError:
        return "refused"
    assert np.isfinite(vector).all()
    return "vector"


def grid_vector_case(raw: bytes) -> str:
    """Of any length, in either width: a vector on the grid or nothing."""
    width = 4 if len(raw) <= len(SHORT) else 8
    try:
        vector = decode_vector(raw, width, GRID)
    except PeerError:
        return "refused"
    assert on_grid(vector, GRID)
    return "vector"


def a_state() -> tuple[type, bytes]:
    """An own state as the store keeps it."""
    protocol = IncA(rounds=ROUNDS, sigma_star=1.0, sigma_delta=1.0)
    schedule = protocol.draw_schedule(PARTIES, insecure_seed(0))
    noise = InsecurePopulationNoise(0, PARTIES).party(0)
    machine = protocol.machine(schedule, 0, np.ones(DIMENSION), 1.0, noise)
    return machine.state_type, dump_state(machine.start().state)


def state_case(kind: type, raw: bytes) -> str:
    try:
        load_state(kind, raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "refused"
    return "state"


def fuzz(seed: int, cases: int) -> Counter[str]:
    """Frames on open connections (most), greetings, logs, vectors, states."""
    mutator, reading, kind_and_state = Mutator(seed), Reading(), a_state()
    kind, state = kind_and_state
    runs: list[Callable[[], str]] = [
        lambda: "open: " + reading.frame(mutator.case(VALID), LIMITS),
        lambda: "grid: " + reading.frame(mutator.case(VALID), GRID_LIMITS),
        lambda: "framed: " + reading.frame(framed(mutator.case(HEADERS)), LIMITS),
        lambda: "framed: " + reading.frame(framed(mutator.case(HEADERS)), LIMITS),
        lambda: "greeting: " + reading.frame(mutator.case(VALID), wire.Limits.before_welcome()),
        lambda: "log: " + log_case(mutator.case([LOG])),
        lambda: "vector: " + vector_case(mutator.case([VECTOR])),
        lambda: "on a grid: " + grid_vector_case(mutator.case([SHORT, VECTOR])),
        lambda: "state: " + state_case(kind, mutator.case([state])),
    ]
    outcomes: Counter[str] = Counter()
    for number in range(cases):
        try:
            outcomes[runs[number % len(runs)]()] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}, case {number}")
            raise
    reading.close()
    return outcomes


def run_fuzz(seed: int, cases: int) -> None:
    wall, begun = time.monotonic(), time.process_time()
    outcomes = fuzz(seed, cases)
    print(f"seed {seed}: {cases} cases in {time.process_time() - begun:.1f} s of processor time, {time.monotonic() - wall:.1f} s")
    for outcome, count in sorted(outcomes.items()):
        print(f"  {outcome}: {count}")
    # The mutations are neither all harmless nor all hopeless.
    wanted = ["open: refused", "open: ended early", "grid: Transfer", "framed: refused", "framed: Transfer", "log: log"]
    for form in [*wanted, "vector: refused", "on a grid: refused", "on a grid: vector"]:
        assert outcomes[form] > 0


@pytest.mark.parametrize(
    ("seed", "cases"), [(1, 20_000), *(pytest.param(seed, 10**6, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_cases_at_random(seed: int, cases: int) -> None:
    run_fuzz(seed, cases)


def test_no_case_costs_more_memory_than_a_few_times_its_size() -> None:
    """Of 256 KiB read at once a stream keeps what came, an announced gigabyte costs nothing, a log unfolds to its limit."""
    mutator, reading = Mutator(4), Reading()
    worst = 0
    tracemalloc.start()
    try:
        for _ in range(3_000):
            raw = mutator.case(VALID)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            reading.frame(raw, LIMITS)
            worst = max(worst, tracemalloc.get_traced_memory()[1] - before)
        for sizes in ((2**30, 0), (100, 2**30), (2**32 - 1, 2**32 - 1)):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert reading.frame(struct.pack(">II", *sizes) + bytes(50), LIMITS) == "refused"
            worst = max(worst, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
        reading.close()
    print(f"at most {worst} bytes for one case")
    assert worst < 64 * 1024 + 2 * LIMITS.log


def test_the_largest_log_costs_a_bounded_multiple_of_its_size() -> None:
    """Two bytes an entry before it is compressed, a tuple of two numbers here."""
    entries = (LIMITS.log - 100) // 2
    log = logs.PartyLog((1,), tuple((1, 2) for _ in range(entries)), (), ())
    raw = logs.encode_log(log)
    plain = len(zlib.decompress(raw))
    assert LIMITS.log - 200 < plain <= LIMITS.log
    del log
    tracemalloc.start()
    try:
        kept = logs.decode_log(raw, PARTIES, ROUNDS)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"a log of {plain} bytes, {len(raw)} compressed, holds {held} bytes, {peak} at most while it is read")
    assert len(kept.sent) == entries
    assert peak < 60 * plain


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [10**6, 10**9])
def test_a_log_that_unfolds_to_more_than_the_limit_is_refused(size: int) -> None:
    unfolding = zlib.compressobj()
    raw = b"".join(unfolding.compress(bytes(10**6)) for _ in range(size // 10**6)) + unfolding.flush()
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match=r"does not end|cannot be read"):
            logs.decode_log(raw, PARTIES, ROUNDS)
        assert tracemalloc.get_traced_memory()[1] < 60 * LIMITS.log
    finally:
        tracemalloc.stop()


# --- what protocols say in their own encoding -----------------------------------------------------------------------------------


def hostile(message: Message, mutator: Mutator, choice: int, limit: int) -> Message | None:
    """A message as a malicious sender could have it accepted: content within the limit, finite values, finite weight."""
    if choice % 7 == 0:
        return None
    if choice % 7 == 1:
        message = replace(message, vector=np.zeros(0) if limit else np.full_like(message.vector, -1e200))
    if choice % 7 == 2:
        message = replace(message, weight=[0.0, -1.0, 1e300, 0.5][choice // 7 % 4])
    if choice % 3 and limit:
        pool = [message.content or b"\0", b"\1" + message.content, bytes(min(limit, 64)), b"\xff" * min(limit, 64)]
        message = replace(message, content=mutator.case(pool)[:limit])
    return message


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_no_message_breaks_a_party(name: str) -> None:
    """A machine fails as a protocol or goes on, whatever the others send; what it keeps can be stored."""

    @settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data(), st.integers(0, 2**31))
    def holds(data: st.DataObject, seed: int) -> None:
        execution = data.draw(executions(name, max_parties=5))
        parties, dimension = execution.parties, getattr(execution.protocol, "dimension", None) or 2
        values = np.full((parties, dimension), 0.1)
        if execution.protocol.traits.domain != ANY_DOMAIN:
            # On the unit sphere.
            values = execution.weights[:, None] * np.full((1, dimension), dimension**-0.5)
        noise = InsecurePopulationNoise(1, parties)
        limit = execution.protocol.traffic(parties, dimension).content_limit
        machines = [execution.machine(party, values[party], noise.party(party)) for party in range(parties)]
        mutator, choices = Mutator(seed, block=500), BitStream(insecure_seed(seed, "choices"))
        try:
            steps = [machine.start() for machine in machines]
            for _ in range(machines[0].rounds):
                sent = [message for step in steps for message in step.send]
                for party, machine in enumerate(machines):
                    due = machine.expects(steps[party].state)
                    drawn = choices.integers(2**20, max(1, len(sent))).tolist()
                    told = [
                        hostile(message, mutator, choice, limit)
                        for message, choice in zip(sent, drawn, strict=False)
                        if message.sender in due and party in message.recipients
                    ]
                    inbox = [message for message in told if message is not None]
                    with np.errstate(all="ignore"):
                        steps[party] = machine.end_round(steps[party].state, inbox, due)
                    load_state(machine.state_type, dump_state(steps[party].state))
        except ProtocolFailure:
            pass

    holds()
