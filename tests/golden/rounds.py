"""Synchronous rounds of real party machines from an execution file, and what they said, as text."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.interfaces import Execution, Message, PartyMachine, Step, dump_state, public_noise, settlement

_LONGEST = 40


@dataclass(frozen=True)
class Turn:
    """One end of a round of one party: the state before, what it was handed, and what it made of it."""

    round: int
    party: int
    state: Any
    inbox: tuple[Message, ...]
    delivered: frozenset[int]
    step: Step[Any]


@dataclass(frozen=True)
class Recorded:
    """All messages that were sent, all turns of parties that were online, and the last step of each party."""

    machines: Sequence[PartyMachine[Any]]
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    last: tuple[Step[Any], ...]
    states: tuple[str, ...]


class Network:
    """What an execution file says of deliveries, read from the file itself.

    Where parties ``refuse``, what one does not expect does not arrive.
    """

    def __init__(self, document: dict[str, Any], refusing: bool) -> None:
        self.online = document["online"]
        self.lost = {(round_, sender, receiver) for round_, sender, receiver in document.get("lost", [])}
        self.settled = {(round_, sender, receiver): later for round_, sender, receiver, later in document.get("settled", [])}
        self.refusing = refusing

    def reached(self, message: Message, awaited: Sequence[frozenset[int]]) -> frozenset[int]:
        return frozenset(
            other
            for other in message.recipients
            if self.online[message.round][other]
            and (message.round, message.sender, other) not in self.lost
            and (not self.refusing or message.sender in awaited[other])
        )


def run_rounds(document: dict[str, Any], values: NDArray[np.float64], seed: int, refusing: bool) -> Recorded:
    """All rounds of the machines on values (n, d) and seeded noise."""
    execution, network = Execution.from_json(document), Network(document, refusing)
    noise, parties = public_noise(seed, len(values)), range(len(values))
    machines = [execution.machine(party, values[party], noise.party(party)) for party in parties]
    steps: list[Step[Any]] = [machine.start() for machine in machines]
    messages: list[Message] = []
    turns: list[Turn] = []
    states: list[str] = [_states_digest(steps)]
    kept: dict[tuple[int, int], list[Message]] = {}
    for round_ in range(1, machines[0].rounds + 1):
        inboxes: list[list[Message]] = [[] for _ in parties]
        delivered: list[set[int]] = [set() for _ in parties]
        awaited = [machine.expects(step.state) for machine, step in zip(machines, steps, strict=True)]
        for party in parties:
            for message in steps[party].send if network.online[round_][party] else ():
                messages.append(message)
                for other in network.reached(message, awaited):
                    inboxes[other].append(message)
                    later = network.settled.get((round_, party, other))
                    if later is None:
                        delivered[party].add(other)
                    else:
                        kept.setdefault((later, party), []).append(message)
        for party, machine in enumerate(machines):
            state = steps[party].state
            if not network.online[round_][party]:
                steps[party] = machine.miss_round(state)
                continue
            inbox = (*inboxes[party], *(settlement(message) for message in kept.get((round_, party), [])))
            steps[party] = machine.end_round(state, inbox, frozenset(delivered[party]))
            turns.append(Turn(round_, party, state, inbox, frozenset(delivered[party]), steps[party]))
        states.append(_states_digest(steps))
    return Recorded(machines, tuple(messages), tuple(turns), tuple(steps), tuple(states))


def message_text(message: Message) -> str:
    """Round, sender > recipients, weight, vector, content: to the last bit, long ones by their digest."""
    recipients = ",".join(map(str, message.recipients))
    numbers = f"{float(message.weight).hex()} {vector_text(message.vector)}"
    return f"{message.round}: {message.sender}>{recipients} {numbers} {bytes_text(message.content)}"


def step_text(step: Step[Any]) -> str:
    """State, messages and release of a step in one short line."""
    parts = [f"state {state_digest(step)[:16]}"]
    if step.send:
        said = "\n".join(map(message_text, step.send))
        parts.append(f"sends {hashlib.sha256(said.encode()).hexdigest()[:16]}")
    if step.release is not None:
        parts.append(f"releases {release_text(step)}")
    if getattr(step.state, "failure", ""):
        parts.append(f"failure: {step.state.failure}")
    return ", ".join(parts)


def release_text(step: Step[Any]) -> str:
    """Weight and vector, or that there is none."""
    release = step.release
    return "nothing" if release is None else f"{float(release.weight).hex()} {vector_text(release.vector)}"


def step_of(state: Any, release: Any) -> Step[Any]:
    """The end of a run, as a step."""
    return Step(state, release=release)


def state_digest(step: Step[Any]) -> str:
    return hashlib.sha256(dump_state(step.state)).hexdigest()


def vector_text(vector: NDArray[np.float64]) -> str:
    """The number of entries and the little-endian float64 bytes."""
    return f"{vector.size}:{bytes_text(np.ascontiguousarray(vector, dtype='<f8').tobytes())}"


def bytes_text(raw: bytes) -> str:
    """Hexadecimal, or length and SHA-256 of what is longer."""
    return raw.hex() or "-" if len(raw) <= _LONGEST else f"{len(raw)}#{hashlib.sha256(raw).hexdigest()[:32]}"


def _states_digest(steps: Iterable[Step[Any]]) -> str:
    return hashlib.sha256("".join(map(state_digest, steps)).encode()).hexdigest()[:16]
