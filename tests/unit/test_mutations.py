"""The checks themselves under test: each deliberately wrong implementation must be caught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from quietmean.core.party import Message, NoiseSource, PartyId, Release, Step, Vector
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.privacy import Adversary, information_matrix
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.push_sum import PushSumParty, PushSumState
from quietmean.protocols.push_sum.parameters import Injection, PushSumParameters, Terms
from quietmean.testing import (
    check_batch,
    check_file,
    check_mass,
    check_protocol,
    check_restarts,
    check_transcript,
    check_weights,
    example_execution,
    theorem41,
)
from quietmean.transcript import Transcript
from support.refusals import raised

Check = Callable[[Execution], None]
ADVERSARY = Adversary(frozenset({1}), frozenset({(4, 2)}))


def execution() -> Execution:
    """With permanent and temporary dropouts, a lost message and different weights."""
    example = example_execution(
        "inca", 7, 2, permanent=0.2, temporary=0.2, rounds=5, out_degree=2, sigma_star=0.5, sigma_delta=2.0
    )
    lost = np.zeros(example.schedule.neighbours.shape, dtype=bool)
    lost[1, :3, 0] = True
    return replace(example, trace=ExecutionTrace(example.trace.online, lost), weights=np.arange(1.0, 8.0))


VALUES: Vector = np.random.default_rng(3).normal(size=(7, 2))


def batch(subject: Execution) -> None:
    check_batch(subject, VALUES)


def mass(subject: Execution) -> None:
    check_mass(subject, VALUES)


def restarts(subject: Execution) -> None:
    check_restarts(subject, VALUES)


def against_theorem(subject: Execution, transcript: Transcript) -> None:
    expected = np.array(list(theorem41(subject.to_json(), ADVERSARY.corrupt, ADVERSARY.observed).values()))
    found = information_matrix(transcript, ADVERSARY).diagonal
    assert np.abs(found / expected - 1).max() <= 1e-8


def declared_against_theorem(subject: Execution) -> None:
    against_theorem(subject, subject.transcript())


def traced_against_theorem(subject: Execution) -> None:
    against_theorem(subject, subject.traced_transcript())


class QuietParty(PushSumParty):
    """Scales its cancelled noise by 0.8."""

    def _injection(self, portion: float, terms: Terms) -> Vector:
        return super()._injection(portion, tuple((index, 0.8 * coefficient) for index, coefficient in terms))


class ForgetfulInjection(Injection):
    """Forgets one term when it cancels."""

    @cached_property
    def cancellations(self) -> tuple[Terms, ...]:
        return tuple(terms[:-1] for terms in super().cancellations)


class LosingParty(PushSumParty):
    """Treats every share as delivered: what was lost is not returned to its sender."""

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        return super().end_round(state, received, frozenset(self._schedule.recipients(state.round, self._party)))


class GreedyParty(PushSumParty):
    """Divides by the number of its neighbours, itself not counted."""

    def _parts(self, round_: int) -> int:
        return max(len(self._schedule.recipients(round_, self._party)), 1)


class HeavyParty(PushSumParty):
    """Claims a weight that is 1 % too large."""

    def start(self) -> Step[PushSumState]:
        step = super().start()
        return replace(step, state=replace(step.state, weight=1.01 * step.state.weight))


class LeakyParty(PushSumParty):
    """Releases its value without the independent noise of the last portion."""

    def __init__(
        self, parameters: PushSumParameters, schedule: Schedule, party: PartyId, value: Vector, weight: float, noise: NoiseSource
    ) -> None:
        super().__init__(parameters, schedule, party, value, weight, noise)
        self._star = noise.normal("star", 0, value.size) * parameters.sigma_star

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        step = super().end_round(state, received, delivered)
        if step.release is None:
            return step
        portion = float(self._parameters.injections.portion[state.injections])
        vector = step.release.vector - self._star * portion
        return replace(step, release=Release(vector, step.release.weight))


class AmnesicParty(PushSumParty):
    """Keeps part of its state outside of what is stored."""

    _count = 0

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        self._count += 1
        return super().end_round(replace(state, weight=state.weight + 1e-9 * self._count), received, delivered)


class OrderSensitiveParty(PushSumParty):
    """Adds up messages in the order of their arrival."""

    def end_round(self, state: PushSumState, received: Sequence[Message], delivered: frozenset[PartyId]) -> Step[PushSumState]:
        renamed = [replace(message, sender=place) for place, message in enumerate(received)]
        return super().end_round(state, renamed, delivered)


class DeafParty(PushSumParty):
    """Expects nobody."""

    def expects(self, state: PushSumState) -> frozenset[PartyId]:
        return frozenset()


def mutated(kind: type[IncA]) -> Execution:
    """The same execution by another implementation."""
    return replace(execution(), protocol=kind.read(execution().protocol.describe()).resolved(7))


def with_party(party: type[PushSumParty]) -> Execution:
    class Mutant(IncA):
        def machine(self, schedule: Schedule, party_: PartyId, value: Vector, weight: float, noise: NoiseSource) -> PushSumParty:
            return party(self, schedule, party_, value, weight, noise)

    return mutated(Mutant)


def with_transcript(change: Callable[[Transcript], Transcript]) -> Execution:
    class Mutant(IncA):
        def transcript(self, schedule: Schedule, trace: ExecutionTrace) -> Transcript:
            return change(super().transcript(schedule, trace))

    return mutated(Mutant)


def forgetful() -> Execution:
    whole = execution()
    assert isinstance(whole.protocol, IncA)
    injection = whole.protocol.injections
    forgetting = ForgetfulInjection(injection.name, injection.portion, injection.noise)
    return replace(whole, protocol=replace(whole.protocol, injection=forgetting))


def senders_only(transcript: Transcript) -> Transcript:
    own = np.zeros((transcript.messages, transcript.parties), dtype=np.bool_)
    own[np.arange(transcript.messages), transcript.sender] = True
    return replace(transcript, message_known=csr_array(own))


def louder(transcript: Transcript) -> Transcript:
    return transcript.with_noise_scales({"star": 0.5, "delta": 2.0 * 1.001})


def unreleased(transcript: Transcript) -> Transcript:
    released = transcript.released.copy()
    released[np.nonzero(released)[0][0]] = False
    return replace(transcript, released=released)


def public_noise(transcript: Transcript) -> Transcript:
    return replace(transcript, noise_known=csr_array(np.ones(transcript.noise_known.shape, dtype=np.bool_)))


def test_the_right_implementation_passes_everything() -> None:
    subject = execution()
    assert (~subject.trace.online).any()
    assert not subject.trace.finished.all()
    check_protocol(subject, VALUES)
    declared_against_theorem(subject)
    traced_against_theorem(subject)


PARTIES: list[tuple[type[PushSumParty], list[Check]]] = [
    (QuietParty, [check_transcript, batch, traced_against_theorem]),
    (LosingParty, [check_transcript, batch, mass, traced_against_theorem]),
    (GreedyParty, [check_transcript, batch]),
    (HeavyParty, [check_weights, batch]),
    (LeakyParty, [check_transcript, batch, traced_against_theorem]),
    (AmnesicParty, [restarts]),
    (OrderSensitiveParty, [restarts]),
    (DeafParty, [restarts]),
]


@pytest.mark.parametrize(
    ("party", "check"),
    [pytest.param(party, check, id=f"{party.__name__}-{check.__name__}") for party, checks in PARTIES for check in checks],
)
def test_wrong_machines_are_caught(party: type[PushSumParty], check: Check) -> None:
    raised(AssertionError, "", check, with_party(party))


@pytest.mark.parametrize("check", [mass, declared_against_theorem, traced_against_theorem])
def test_a_forgotten_cancellation_is_caught(check: Check) -> None:
    raised(AssertionError, "", check, forgetful())


@pytest.mark.parametrize("change", [senders_only, louder, unreleased, public_noise])
@pytest.mark.parametrize("check", [check_transcript, declared_against_theorem])
def test_wrong_declarations_are_caught(change: Callable[[Transcript], Transcript], check: Check) -> None:
    raised(AssertionError, "", check, with_transcript(change))


def test_an_incomplete_file_is_caught() -> None:
    class Mutant(IncA):
        def describe(self) -> dict[str, Any]:
            return super().describe() | {"sigma_star": 2 * self.sigma_star}

    raised(AssertionError, "", check_file, mutated(Mutant))


def test_a_wrong_batch_kernel_is_caught() -> None:
    class Mutant(IncA):
        def batch(self, *others: Any, **more: Any) -> Any:
            whole = IncA.read(self.describe() | {"sigma_star": self.sigma_star * (1 + 1e-9)}).resolved(7)
            return whole.batch(*others, **more)

    raised(AssertionError, "", batch, mutated(Mutant))
