"""Members of a committee in lockstep: real machines and keys, states through the bytes of a store, messages lost or replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quietmean.core.codec import dump_state, load_state
from quietmean.core.party import Message, Step
from quietmean.protocols.committee.lists import HeldInMemory
from quietmean.protocols.committee.member import CommitteeMachine
from quietmean.protocols.committee.result import CheckedResult, check_result, read_result
from quietmean.protocols.committee.voting import CommitteeState
from quietmean.randomness import Seed
from support.committee_world import SEALER, CommitteeWorld, OwnNoise

# (round, sender, receiver, content) to the content that arrives, or None for none.
Network = Callable[[int, int, int, bytes], bytes | None]


def everything(round_: int, sender: int, receiver: int, content: bytes) -> bytes | None:
    return content


@dataclass
class CommitteeRun:
    """``files``: of contributors, by name; ``lost``: (member, name) that do not reach a member. ``kinds``: machines of liars.

    ``gone``: from which round on a member is away for good. ``restarts``: (round, member) after which a process is a new one.
    """

    world: CommitteeWorld
    files: Mapping[Any, bytes]
    lost: frozenset[tuple[int, Any]] = frozenset()
    network: Network = everything
    gone: Mapping[int, int] = field(default_factory=dict)
    kinds: Mapping[int, type[CommitteeMachine]] = field(default_factory=dict)
    restarts: frozenset[tuple[int, int]] = frozenset()
    seed: str = "run"

    def __post_init__(self) -> None:
        self.members = range(self.world.parameters.members)
        self.holdings = [self._held(member) for member in self.members]
        self.machines = [self._machine(member) for member in self.members]
        self.states: list[CommitteeState] = []
        self.sent: list[Message] = []
        # Rounds in which a member that has the result waits in vain for an answer, by member.
        self.waited: dict[int, set[int]] = {member: set() for member in self.members}

    def _held(self, member: int) -> HeldInMemory:
        held = HeldInMemory(self.world.session, member, self.world.opener(member))
        for name, raw in self.files.items():
            if (member, name) not in self.lost:
                held.take(raw)
        return held

    def _machine(self, member: int) -> CommitteeMachine:
        world, kind = self.world, self.kinds.get(member, CommitteeMachine)
        noise = OwnNoise(Seed.public(self.seed, member))
        return kind(world.session, member, world.signer(member), SEALER, world.opener(member), self.holdings[member], noise)

    def run(self) -> CommitteeRun:
        steps: list[Step[CommitteeState] | None] = [
            None if self._away(member, 1) else self.machines[member].start() for member in self.members
        ]
        for round_ in range(1, self.machines[0].rounds + 1):
            inbox, delivered = self._deliver(round_, steps)
            for member in self.members:
                step = steps[member]
                if step is None:
                    continue
                if self._away(member, round_ + 1):
                    steps[member] = None
                    continue
                if (round_, member) in self.restarts:
                    self.machines[member] = self._machine(member)
                state = load_state(CommitteeState, dump_state(step.state))
                steps[member] = self.machines[member].end_round(state, inbox[member], frozenset(delivered[member]))
        self.states = [CommitteeState() if step is None else step.state for step in steps]
        return self

    def _away(self, member: int, round_: int) -> bool:
        return round_ >= self.gone.get(member, 10**9)

    def _deliver(self, round_: int, steps: list[Step[CommitteeState] | None]) -> tuple[list[list[Message]], list[set[int]]]:
        inbox: list[list[Message]] = [[] for _ in self.members]
        delivered: list[set[int]] = [set() for _ in self.members]
        for sender, step in enumerate(steps):
            for message in () if step is None else step.send:
                for receiver in message.recipients:
                    there = steps[receiver]
                    content = None if there is None else self.network(round_, sender, receiver, message.content)
                    if there is None or content is None:
                        if step is not None and step.state.has_result:
                            self.waited[sender].add(round_)
                    # A node refuses what its machine does not expect.
                    elif sender in self.machines[receiver].expects(there.state):
                        arrived = replace(message, content=content)
                        self.sent.append(arrived)
                        inbox[receiver].append(arrived)
                        delivered[sender].add(receiver)
        return inbox, delivered

    def checked(self, member: int) -> CheckedResult | None:
        """The result of a member, as anybody checks it."""
        raw = self.states[member].result.content
        return check_result(self.world.session, read_result(self.world.session, raw)) if raw else None

    def results(self) -> list[CheckedResult | None]:
        return [self.checked(member) for member in self.members]

    def counted(self) -> set[frozenset[str]]:
        """Whose contributions count, in the results that there are."""
        return {frozenset(key for _, key, _ in checked.counted) for checked in self.results() if checked is not None}
