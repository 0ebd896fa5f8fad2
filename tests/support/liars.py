"""A machine that lies: a party's program that does all as it should, but for what it releases in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import PeerError
from quietmean.core.party import Message, PartyId, Release, Step
from quietmean.node.session import NodeResult
from quietmean.planning import Plan
from support.faults import World


class LiarMayFail(World):
    """The liar's own program ends when it reads what it made."""

    async def _live(self, party: PartyId) -> NodeResult | None:
        try:
            return await super()._live(party)
        except PeerError:
            return None


Lie = Callable[[Release], Release]

# On the grid of every plan: whole numbers are, and what is too large for it a liar cannot write down either.
LIES: dict[str, Lie] = {
    "too large": lambda told: replace(told, vector=told.vector + 2.0**20),
    "too small": lambda told: replace(told, vector=told.vector - 2.0**20),
    "no number": lambda told: replace(told, vector=np.full_like(told.vector, np.nan)),
    "1e300": lambda told: replace(told, vector=np.full_like(told.vector, 1e300)),
    "half a record": lambda told: replace(told, weight=told.weight - 0.5),
    "twice the records": lambda told: replace(told, weight=told.weight * 2),
}


# What a liar's machine is given, as the columns of the page about liars name it.
HEADS = ("too large", "too small", "no number", "1e300", "twice the records", "half a record less")


def lie_of(head: str, value: NDArray[np.float64], weight: float, far: float = 2.0**20) -> tuple[NDArray[np.float64], float]:
    """The vector and the weight that a liar's machine is given, where its true ones are these. ``far``: how much is too much."""
    offset = {"too large": far, "too small": -far, "no number": np.nan, "1e300": 1e300}.get(head, 0.0)
    return value + offset, {"twice the records": 2 * weight, "half a record less": weight - 0.5}.get(head, weight)


def given_a_lie(liar: PartyId, head: str, far: float = 2.0**20, honest: Callable[..., Any] = Plan.machine) -> Callable[..., Any]:
    """In place of :meth:`Plan.machine`: one party's machine is given what no admission lets in."""

    def machine(plan: Plan, schedule: Any, party: PartyId, value: Any, noise: Any) -> Any:
        if party != liar:
            return honest(plan, schedule, party, value, noise)
        return plan.protocol.machine(schedule, party, *lie_of(head, value.vector, value.weight, far), noise)

    return machine


class Liar:
    """A party's machine; ``lie`` makes of its release another one."""

    def __init__(self, machine: Any, lie: Lie) -> None:
        self._machine, self._lie = machine, lie

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def start(self) -> Step[Any]:
        return self._told(self._machine.start())

    def end_round(self, state: Any, inbox: Sequence[Message], reached: frozenset[PartyId]) -> Step[Any]:
        return self._told(self._machine.end_round(state, inbox, reached))

    def miss_round(self, state: Any) -> Step[Any]:
        return self._told(self._machine.miss_round(state))

    def _told(self, step: Step[Any]) -> Step[Any]:
        return step if step.release is None else replace(step, release=self._lie(step.release))


def lying(liar: PartyId, lie: Lie, honest: Callable[..., Any] = Plan.machine) -> Callable[..., Any]:
    """In place of :meth:`Plan.machine`: one party's machine lies."""

    def machine(plan: Plan, schedule: Any, party: PartyId, value: Any, noise: Any) -> Any:
        made = honest(plan, schedule, party, value, noise)
        return Liar(made, lie) if party == liar else made

    return machine


class _TellsApart(Liar):
    """It releases to one party what cannot be, and the truth to all others."""

    def __init__(self, machine: Any, victim: PartyId) -> None:
        super().__init__(machine, LIES["too large"])
        self._victim = victim

    def start(self) -> Step[Any]:
        step = self._machine.start()
        (told,) = step.send
        lie = self._lie(Release(told.vector, told.weight))
        others = tuple(other for other in told.recipients if other != self._victim)
        return replace(
            step, send=(replace(told, recipients=others), replace(told, recipients=(self._victim,), vector=lie.vector))
        )

    def _told(self, step: Step[Any]) -> Step[Any]:
        # Its own total it tells nobody.
        return step


def telling_apart(liar: PartyId, victim: PartyId, honest: Callable[..., Any] = Plan.dissemination_machine) -> Callable[..., Any]:
    """In place of :meth:`Plan.dissemination_machine`: one party's machine tells one other something else."""

    def machine(plan: Plan, party: PartyId, *given: Any) -> Any:
        made = honest(plan, party, *given)
        return _TellsApart(made, victim) if party == liar else made

    return machine


class _Unreadable(Liar):
    """All that it sends and releases is no number."""

    def _told(self, step: Step[Any]) -> Step[Any]:
        sent = tuple(replace(message, vector=np.full_like(message.vector, np.nan)) for message in step.send)
        return super()._told(replace(step, send=sent))


def sending_what_nobody_takes(liar: PartyId, honest: Callable[..., Any] = Plan.machine) -> Callable[..., Any]:
    """In place of :meth:`Plan.machine`: no connection takes what one party sends."""

    def machine(plan: Plan, schedule: Any, party: PartyId, value: Any, noise: Any) -> Any:
        made = honest(plan, schedule, party, value, noise)
        return _Unreadable(made, LIES["no number"]) if party == liar else made

    return machine


class _Silent(Liar):
    """From a round on it sends nothing, and is there all the same."""

    def __init__(self, machine: Any, since: int) -> None:
        super().__init__(machine, LIES["no number"])
        self._since = since

    def _told(self, step: Step[Any]) -> Step[Any]:
        return step if step.state.round < self._since else replace(step, send=(), release=None)


def silent_since(liar: PartyId, round_: int, honest: Callable[..., Any] = Plan.machine) -> Callable[..., Any]:
    """In place of :meth:`Plan.machine`: one party sends nothing from a round on, and answers whatever it is asked."""

    def machine(plan: Plan, schedule: Any, party: PartyId, value: Any, noise: Any) -> Any:
        made = honest(plan, schedule, party, value, noise)
        return _Silent(made, round_) if party == liar else made

    return machine
