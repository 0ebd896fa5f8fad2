"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId, Vector
from quietmean.node.context import Report
from quietmean.node.identity import Identity
from quietmean.node.listener import Listener, open_socket
from quietmean.node.readiness import Agreed
from quietmean.node.result import NodeResult
from quietmean.node.roster import Roster
from quietmean.node.session import Part, Session
from quietmean.node.store import Store
from quietmean.node.tls import Credentials
from quietmean.node.transport import Endpoint, Link, OnAnswer, Traffic
from quietmean.node.watch import NodeView, Watch
from quietmean.node.whereabouts import Position
from quietmean.node.wire import Answer, AnyRequest, Limits
from quietmean.planning import Plan


def _silent(event: dict[str, Any]) -> None:
    """Nobody watches."""


@dataclass(frozen=True)
class NodeSettings:
    """One party's part in one study. ``value`` has shape (d,) and is private; time-outs are in seconds.

    ``gone_timeout``: how long a round waits for a party whose process has ended (nobody listens at its address), if that is
    shorter; by default as long as for anybody, since it may be started again. ``listen_socket``: bound and listening already,
    closed at the end; else the node listens on its address in the roster. ``report`` hears of progress as JSON-ready dicts with
    an "event"; ``observe`` gets a view of the whole a few times a second, and the file ``status`` shows it to other processes.
    """

    identity: Identity
    roster: Roster
    plan: Plan
    value: Vector = field(repr=False)
    weight: float
    store: Path
    round_timeout: float = 10.0
    start_timeout: float = 60.0
    gone_timeout: float | None = None
    listen_socket: socket.socket | None = None
    report: Report = _silent
    observe: Callable[[NodeView], None] | None = None
    status: Path | None = None

    def __post_init__(self) -> None:
        target = self.plan.target
        if len(self.roster) != target.parties:
            raise InputError(f"the roster lists {len(self.roster)} parties but the plan is for {target.parties}: make them agree")
        if self.value.shape != (target.dimension,) or not np.isfinite(self.value).all():
            # The value itself is private: only its shape may be told.
            raise InputError(f"the value has shape {self.value.shape}: it must be {target.dimension} finite numbers, as planned")
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"weight is {self.weight:g}: choose a finite number > 0")
        for name, seconds in (("round time-out", self.round_timeout), ("start time-out", self.start_timeout)):
            if not (np.isfinite(seconds) and seconds > 0):
                raise InputError(f"{name} is {seconds:g} s: choose a finite number of seconds > 0")

    @property
    def study(self) -> str:
        """The session digest: what all parties of a study must have in common, SHA-256, hexadecimal."""
        return digest({"format": "quietmean-session-1", "roster": self.roster.digest, "plan": self.plan.digest})

    def part(self, party: PartyId, report: Report) -> Part:
        names = tuple(entry.name for entry in self.roster.entries)
        timeouts = (self.round_timeout, self.start_timeout, self.gone_timeout)
        return Part(party, names, self.study, self.plan, self.value, self.weight, *timeouts, report)


async def run_party(settings: NodeSettings) -> NodeResult:
    """Take part in a study until its end.

    Raises :class:`InputError` for what the user can mend (address in use, another study's store, other data than before) and
    :class:`ProtocolFailure` if the study did not start or nothing of it came back.
    """
    with contextlib.ExitStack() as stack:
        if settings.listen_socket is not None:
            stack.enter_context(settings.listen_socket)
        party = settings.roster.find(settings.identity)
        store = Store.open(settings.store, settings.study, settings.value, settings.weight)
        stack.callback(store.close)
        # Not before the store is this process' own: another one's status must stay.
        watch = stack.enter_context(_watch(settings, party))
        return await _run_session(settings, party, store, watch)


def _watch(settings: NodeSettings, party: PartyId) -> Watch:
    names = [entry.name for entry in settings.roster.entries]
    study = {"study": settings.plan.context.get("study"), "session": settings.study, "protocol": settings.plan.protocol.name}
    return Watch(party, names, study, Traffic(), settings.report, settings.observe, settings.status)


class _WatchedLink(Link):
    """Tells the watch what was answered."""

    def __init__(self, endpoint: Endpoint, peer: PartyId, watch: Watch) -> None:
        super().__init__(endpoint, peer)
        self._told = partial(watch.acknowledged, peer)

    async def ask(self, request: AnyRequest, payload: bytes = b"", on_answer: OnAnswer = lambda answer: None) -> Answer:
        def answered(answer: Answer) -> None:
            on_answer(answer)
            self._told(request, answer)

        return await super().ask(request, payload, answered)


async def _run_session(settings: NodeSettings, party: PartyId, store: Store, watch: Watch) -> NodeResult:
    """A session over TLS: one listener, and a link to each of the others."""
    plan, roster, traffic = settings.plan, settings.roster, watch.traffic
    agreed = Agreed.of(roster, plan)
    target = plan.target
    content = plan.protocol.content_limit(plan.parameters, target.parties, target.dimension)
    limits = Limits.of_study(target.parties, plan.protocol.rounds(plan.parameters), target.dimension, content)
    credentials = Credentials(settings.identity, roster)

    def endpoint(session: Session) -> Endpoint:
        def heard(peer: PartyId, position: Position) -> None:
            session.whereabouts.heard(peer, position)
            watch.heard(peer, position)

        return Endpoint(party, roster, settings.study, credentials, limits, session.refused, heard, traffic)

    def make_links(session: Session) -> dict[PartyId, Link]:
        return {peer: _WatchedLink(endpoint(session), peer, watch) for peer in range(target.parties) if peer != party}

    async def handle(sender: PartyId, request: AnyRequest, payload: bytes) -> Answer:
        answer = await session.handle(sender, request, payload)
        watch.arrived(sender, request, answer)
        return answer

    session = Session(settings.part(party, watch.event), store, make_links, traffic)
    listening = settings.listen_socket or open_socket(roster.entries[party].address)
    listener = Listener(
        endpoint(session),
        listening,
        handle,
        lambda: session.position,
        readiness=lambda: agreed.readiness(True, session.position),
    )
    listener.start()
    try:
        return await session.run()
    finally:
        await listener.close()
        await session.close_links()
