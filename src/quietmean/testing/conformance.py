"""Conformance checks for any registered protocol, on any execution of it, and the comparison of two transcripts.

The symbolic transcript, the batch program, and the party machines (traced and run) must agree.
Each check raises ``AssertionError`` with what differs. :func:`check_protocol` runs all of them; feed it many executions, for
example those of ``quietmean.testing.strategies.executions``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Mask, Matrix
from quietmean.core.codec import canonical_json, dump_state, load_state
from quietmean.core.party import (
    Message,
    NoiseGroup,
    NoiseSource,
    PartyId,
    PartyMachine,
    PopulationNoise,
    Release,
    Step,
    Units,
    Vector,
)
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.protocols.traits import grid_of
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilence, InsecureSilentPopulation, InsecureStackedNoise
from quietmean.transcript import LockstepResult, Transcript, run_lockstep

# The key of a message: sender, round, everybody who knows it, and whether it is released to all.
MessageKey = tuple[PartyId, int, tuple[PartyId, ...], bool]


def assert_same_transcript(first: Transcript, second: Transcript, one: str, other: str, tolerance: float) -> None:
    """Raises ``AssertionError`` naming what differs between transcript ``one`` and transcript ``other``.

    Only what leaves a party counts. The data maps must agree; of the noise, whose columns may be in any order, the covariance
    of all messages must, for the noise of every group and every set of parties that know it.
    """
    keys, rows = _message_keys(first)
    others, other_rows = _message_keys(second)
    difference = {one: sorted(set(keys) - set(others)), other: sorted(set(others) - set(keys))}
    assert not any(difference.values()), f"only in one of them, as (sender, round, known to, released): {difference}"
    assert keys == others, f"{one} and {other} repeat a message a different number of times"
    values, noise = first.eliminated()
    other_values, other_noise = second.eliminated()
    _assert_equal(values[rows], other_values[other_rows], f"values in messages, {one} and {other}", tolerance)
    grams, other_grams = _grams(first, noise[rows]), _grams(second, other_noise[other_rows])
    nothing = np.zeros((len(rows), len(rows)))
    units = _unit(first) | _unit(second)
    for key in sorted(grams.keys() | other_grams.keys()):
        subject = f"covariance of {key[0]!r} noise known to {list(key[1])}, {one} and {other}"
        _assert_equal(grams.get(key, nothing), other_grams.get(key, nothing), subject, tolerance, units[key[0]])


def _message_keys(transcript: Transcript) -> tuple[list[MessageKey], list[int]]:
    """Return keys of the messages that a party other than the sender knows, in canonical order, and their rows."""
    knowers_of = transcript.message_known.toarray()
    keyed: list[tuple[MessageKey, int]] = []
    for row in range(transcript.messages):
        sender, released = int(transcript.sender[row]), bool(transcript.released[row])
        knowers = tuple(np.nonzero(knowers_of[row])[0].tolist())
        if released or set(knowers) - {sender}:
            keyed.append(((sender, int(transcript.message_round[row]), knowers, released), row))
    keyed.sort()
    return [key for key, _ in keyed], [row for _, row in keyed]


def _grams(transcript: Transcript, noise: Matrix) -> dict[tuple[str, tuple[PartyId, ...]], Matrix]:
    """The part of the messages' covariance that comes from each group of noise and each set of parties that know it."""
    knowers_of = transcript.noise_known.toarray()
    columns: dict[tuple[str, tuple[PartyId, ...]], list[int]] = defaultdict(list)
    for column, group in enumerate(transcript.noise_group):
        columns[str(group), tuple(np.nonzero(knowers_of[column])[0].tolist())].append(column)
    return {key: noise[:, members] @ noise[:, members].T for key, members in columns.items()}


def _unit(transcript: Transcript) -> dict[str, float]:
    """The variance of the largest single contribution of each group of noise: what rounding errors are relative to."""
    sizes = np.abs(transcript.noise.data * transcript.noise_scale[transcript.noise.indices]) ** 2
    groups = transcript.noise_group[transcript.noise.indices]
    return {str(group): float(sizes[groups == group].max(initial=0.0)) for group in np.unique(transcript.noise_group)}


def _assert_equal(first: Matrix, second: Matrix, subject: str, tolerance: float, unit: float = 1.0) -> None:
    scale = max(unit, float(np.abs(first).max(initial=0.0)))
    worst = float(np.abs(first - second).max(initial=0.0))
    assert worst <= tolerance * scale, f"{subject} differ by {worst:.3g}"


# Relative to the largest number that takes part: a few hundred roundings.
TOLERANCE = 1e-12


def check_protocol(execution: Execution, values: Vector, seed: int = 0) -> None:
    """All checks that apply. ``values`` has shape (n, d); ``seed`` is that of the (insecure) noise."""
    values = execution.protocol.TRAITS.inputs.fitted(execution.protocol, values, execution.weights)
    check_file(execution)
    if execution.protocol.traits.linear:
        check_transcript(execution)
        check_weights(execution)
        check_contributors(execution)
    check_batch(execution, values, seed)
    check_restarts(execution, values, seed)
    if mixes(execution):
        check_mass(execution, values, seed)


def mixes(execution: Execution) -> bool:
    """Whether every party mixes with others and releases its part of the total at the end, whatever arrives."""
    releasers = execution.protocol.traits.releasers(execution.parties)
    if not execution.protocol.traits.linear or not execution.protocol.traits.releases_are_public:
        return False
    if execution.schedule.rounds == 0 or releasers != frozenset(range(execution.parties)):
        return False
    disconnect = replace(ExecutionTrace.everyone(execution.schedule.rounds, execution.parties), lost=_all_lost(execution))
    # Some protocols release nothing where too few other parties are online.
    return bool(execution.with_trace(disconnect).contributors().all())


def _all_lost(execution: Execution) -> Mask:
    return np.ones(execution.schedule.neighbours.shape, dtype=np.bool_)


def check_file(execution: Execution) -> None:
    """The execution file holds all there is: reading it back gives the same file and the same transcript."""
    document = execution.to_json()
    again = Execution.from_json(document)
    assert canonical_json(again.to_json()) == canonical_json(document), "the execution file changes when read and written again"
    if not execution.protocol.traits.has_transcript:
        return
    assert_same_transcript(execution.transcript(), again.transcript(), "written", "read back", TOLERANCE)


def check_transcript(execution: Execution) -> None:
    """The program read with symbols equals the transcript traced through the machines: what is sent, to whom, which noise."""
    assert_same_transcript(execution.full_transcript(), execution.traced_transcript(), "program", "traced", TOLERANCE)


def check_contributors(execution: Execution) -> None:
    """The value of every party that counts as a contributor is in what was released, if anything was."""
    transcript = execution.transcript()
    if not transcript.released.any():
        return
    solved = np.linalg.solve(np.eye(transcript.messages) - transcript.dependence.toarray(), transcript.values.toarray())
    missing = execution.contributors() & ~solved[transcript.released].any(axis=0)
    assert not missing.any(), (
        f"parties {np.flatnonzero(missing).tolist()} count as contributors, and nothing of theirs is released"
    )


def check_batch(execution: Execution, values: Vector, seed: int = 0) -> None:
    """The batch program and the party machines release the same on the same noise, whichever way it is drawn.

    ``values``: shape (n, d).
    """
    for noise in (InsecurePopulationNoise(seed, execution.parties), InsecureStackedNoise(seed, execution.parties)):
        machines = execution.run(values, noise)
        batch = execution.run_batch(values, noise)
        released_by = np.nonzero(batch.by)[0].tolist()
        assert sorted(machines.releases) == released_by, f"released by {sorted(machines.releases)}, by the program {released_by}"
        for party, release in machines.releases.items():
            _assert_close(release.vector, batch.vector[party], _magnitude(execution, values), f"release of party {party}")
            weight = np.array([batch.weight[party]])
            _assert_close(np.array([release.weight]), weight, float(execution.weights.sum()), f"weight of party {party}")


def check_weights(execution: Execution) -> None:
    """Weights mix as values do: if every value is its party's weight, the vector of every release without noise is its weight."""
    result = execution.run(execution.weights[:, None], InsecureSilentPopulation(execution.parties))
    for party, release in result.releases.items():
        weight = np.array([release.weight])
        subject = f"weight against values of party {party}"
        _assert_close(release.vector, weight, float(execution.weights.sum()), subject, _rounding(execution))


def check_mass(execution: Execution, values: Vector, seed: int = 0) -> None:
    """Mixing conserves mass: if all parties finish, the total is the same as without any message.

    This includes temporary dropouts and lost messages. Only the noise that is meant to stay changes the total. ``values``:
    shape (n, d).
    """
    finishing = _everyone_finishes(execution)
    silent = replace(finishing, trace=replace(finishing.trace, lost=_all_lost(execution)))
    mute = InsecureSilentPopulation(execution.parties)
    # Of the execution in which all finish: in this one, perhaps no party releases anything.
    scale = _magnitude(finishing, values) * execution.parties
    mixed, injected = _total(finishing.run(values, mute)), _total(silent.run(values, mute))
    _assert_close(mixed, injected, scale + float(execution.weights.sum()), "total without noise")
    noise = InsecurePopulationNoise(seed, execution.parties)
    everything, kept = _total(finishing.run(values, noise)), _total(finishing.run(values, _KeptNoise(execution.parties, noise)))
    subject = f"total with all noise against that with '{NoiseGroup.INDEPENDENT}' noise only"
    _assert_close(everything, kept, scale, subject, _rounding(execution))


def check_restarts(execution: Execution, values: Vector, seed: int = 0) -> None:
    """Parties that crash after every step and resume from their stored state send and release the same to the last bit.

    Nor may the order in which messages arrive matter, and every one of them must be expected. ``values``: shape (n, d).
    """
    steady = _watch(execution, values, seed, restart=False)
    restarted = _watch(execution, values, seed, restart=True)
    assert len(steady.sent) == len(restarted.sent), "a restarted party sends another number of messages"
    for (steady_message, receivers), (resumed_message, reached) in zip(steady.sent, restarted.sent, strict=True):
        same = (steady_message.sender, steady_message.recipients, steady_message.round) == (
            resumed_message.sender,
            resumed_message.recipients,
            resumed_message.round,
        )
        assert same, f"a restarted party {steady_message.sender} talks to others in round {steady_message.round}"
        assert receivers == reached, (
            f"the drive of party {steady_message.sender} differs in round {steady_message.round}: it is not deterministic"
        )
        subject = f"message of party {steady_message.sender} in round {steady_message.round}"
        _assert_identical(
            Release(steady_message.vector, steady_message.weight),
            Release(resumed_message.vector, resumed_message.weight),
            subject,
        )
        assert steady_message.content == resumed_message.content, f"{subject} has other content after a restart"
    assert steady.result.releases.keys() == restarted.result.releases.keys(), "a restart changes who releases"
    for party, release in steady.result.releases.items():
        _assert_identical(release, restarted.result.releases[party], f"release of party {party}")
    for party, (state, resumed) in enumerate(zip(steady.result.states, restarted.result.states, strict=True)):
        assert dump_state(state) == dump_state(resumed), f"a restart changes the last state of party {party}"


@dataclass(frozen=True)
class _Watched:
    sent: list[tuple[Message, frozenset[PartyId]]]
    result: LockstepResult


def _watch(execution: Execution, values: Vector, seed: int, restart: bool) -> _Watched:
    noise = InsecureStackedNoise(seed, execution.parties)
    machines: list[PartyMachine[Any]] = []
    for party in range(execution.parties):
        machine = _Restarting(execution, party, values[party], noise.party(party))
        machines.append(machine if restart else machine.fresh())
    delivered = execution.trace.delivered(execution.schedule)

    def arrives(round_: int, sender: PartyId, recipient: PartyId) -> bool:
        return bool((delivered[round_ - 1, sender] & (execution.schedule.neighbours[round_ - 1, sender] == recipient)).any())

    sent: list[tuple[Message, frozenset[PartyId]]] = []
    result = run_lockstep(
        machines,
        execution.trace,
        arrives,
        lambda message, receivers: sent.append((message, receivers)),
        refusing=execution.protocol.traits.refuses_messages,
    )
    return _Watched(sent, result)


class _Restarting:
    """A party whose process ends after every step: a new machine goes on from the stored bytes."""

    def __init__(self, execution: Execution, party: PartyId, value: Vector, noise: NoiseSource) -> None:
        self._execution = execution
        self._party = party
        self._value = value
        self._noise = noise

    def fresh(self) -> PartyMachine[Any]:
        execution, weight = self._execution, float(self._execution.weights[self._party])
        return execution.protocol.machine(execution.schedule, self._party, self._value, weight, self._noise)

    @property
    def rounds(self) -> int:
        return self.fresh().rounds

    @property
    def state_type(self) -> type[Any]:
        return self.fresh().state_type

    def start(self) -> Step[Any]:
        return self.fresh().start()

    def end_round(self, state: Any, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[Any]:
        unexpected = {message.sender for message in received} - self.expects(state) - {self._party}
        assert not unexpected, f"party {self._party} does not expect the messages that it gets from {sorted(unexpected)}"
        # The network delivers in any order: the reverse is as good as the order of the first run.
        return self.fresh().end_round(self._reloaded(state), list(reversed(received)), delivered)

    def miss_round(self, state: Any) -> Step[Any]:
        return self.fresh().miss_round(self._reloaded(state))

    def expects(self, state: Any) -> frozenset[PartyId]:
        return self.fresh().expects(self._reloaded(state))

    def _reloaded(self, state: Any) -> Any:
        return load_state(self.state_type, dump_state(state))


class _KeptNoise(InsecureSilentPopulation):
    """Population noise of which only the part that is meant to stay in the result is drawn."""

    def __init__(self, parties: int, noise: PopulationNoise) -> None:
        super().__init__(parties)
        self._noise = noise

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        kept = purpose == NoiseGroup.INDEPENDENT
        return self._noise.normal(purpose, index, dimension) if kept else super().normal(purpose, index, dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        kept, zeros = purpose == NoiseGroup.INDEPENDENT, super().discrete(purpose, index, scale, dimension, shares)
        return self._noise.discrete(purpose, index, scale, dimension, shares) if kept else zeros

    def party(self, party: PartyId) -> NoiseSource:
        return _KeptNoiseOfOne(self._noise.party(party))


class _KeptNoiseOfOne(InsecureSilence):
    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        kept = purpose == NoiseGroup.INDEPENDENT
        return self._noise.normal(purpose, index, dimension) if kept else super().normal(purpose, index, dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        kept, zeros = purpose == NoiseGroup.INDEPENDENT, super().discrete(purpose, index, scale, dimension, shares)
        return self._noise.discrete(purpose, index, scale, dimension, shares) if kept else zeros


def _everyone_finishes(execution: Execution) -> Execution:
    online = execution.trace.online.copy()
    online[-1] = True
    return replace(execution, trace=ExecutionTrace(online, execution.trace.lost))


def _total(result: LockstepResult) -> Vector:
    """Total vector and, as one more coordinate, total weight."""
    rows = np.array([np.append(release.vector, release.weight) for release in result.releases.values()])
    total: Vector = rows.sum(axis=0)
    return total


def _magnitude(execution: Execution, values: Vector) -> float:
    """The size of the numbers that rounding errors come from."""
    if not execution.protocol.traits.has_transcript:
        return float(np.abs(values).max(initial=0.0)) * execution.parties + 1e-300
    transcript = execution.transcript()
    noise = np.abs(transcript.noise.data * transcript.noise_scale[transcript.noise.indices]).max(initial=0.0)
    return float(np.abs(values).max(initial=0.0) + noise * execution.parties) + 1e-300


def _rounding(execution: Execution) -> float:
    """By how much numbers on a grid may differ from those of the protocol in real numbers: half a step a rounding.

    A rounded share errs at both ends, mixing does not enlarge the sum of all errors, and what is kept although it was used counts
    twice until it is settled. Twice the injections, where two runs on the grid are compared.
    """
    grid = grid_of(execution.protocol) or execution.protocol.numbers().step
    schedule, settled = execution.schedule, len(execution.trace.settled)
    steps = execution.parties * (schedule.rounds + 1) + int(schedule.out_degree.sum())
    return float(grid * steps * 3**settled)


def _assert_close(first: Vector, second: Vector, scale: float, subject: str, slack: float = 0.0) -> None:
    worst = float(np.abs(first - second).max(initial=0.0))
    assert worst <= TOLERANCE * scale + slack, f"{subject}: {first} differs from {second} by {worst:.3g}"


def _assert_identical(first: Release, second: Release, subject: str) -> None:
    same = first.vector.tobytes() == second.vector.tobytes() and first.weight == second.weight
    assert same, f"{subject} differs after a restart: {first} and {second}"
