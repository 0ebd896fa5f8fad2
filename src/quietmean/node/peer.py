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
from quietmean.entropy import Seed
from quietmean.node.closing import kept_result
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
from quietmean.node.whereabouts import Phase, Position
from quietmean.node.wire import Answer, AnyRequest, Limits, Payload
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
    ``wipe_value``: the array ``value`` is overwritten with zeros as soon as it is no longer needed, so the settings serve once.
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
    wipe_value: bool = False

    def __post_init__(self) -> None:
        target = self.plan.target
        if len(self.roster) != target.parties:
            raise InputError(f"the roster lists {len(self.roster)} parties but the plan is for {target.parties}: make them agree")
        if self.value.shape != (target.dimension,) or not np.isfinite(self.value).all():
            # The value itself is private: only its shape may be told.
            raise InputError(f"the value has shape {self.value.shape}: it must be {target.dimension} finite numbers, as planned")
        self.plan.protocol.check_values(self.value)
        if not (np.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"weight is {self.weight:g}: choose a finite number > 0")
        for name, seconds in (("round time-out", self.round_timeout), ("start time-out", self.start_timeout)):
            if not (np.isfinite(seconds) and seconds > 0):
                raise InputError(f"{name} is {seconds:g} s: choose a finite number of seconds > 0")

    @property
    def study(self) -> str:
        """The session digest: what all parties of a study must have in common, SHA-256, hexadecimal."""
        return digest({"format": "quietmean-session-1", "roster": self.roster.digest, "plan": self.plan.digest})

    def open_store(self, fresh: Callable[[], Seed] = Seed.from_os) -> Store:
        """The party's store for this study and input. Raises :class:`InputError`."""
        owner = self.identity.derive("store")
        return Store.open(self.store, self.study, self.value, self.weight, fresh, owner, self.plan.grid)

    def part(self, party: PartyId, report: Report) -> Part:
        names = tuple(entry.name for entry in self.roster.entries)
        timeouts = (self.round_timeout, self.start_timeout, self.gone_timeout)
        return Part(party, names, self.study, self.plan, self.value, self.weight, *timeouts, report, self.wipe_value)


async def run_party(settings: NodeSettings) -> NodeResult:
    """Take part in a study until its end. After that the result is in the store, and is returned without any network.

    Raises :class:`InputError` for what the user can mend (address in use, another study's store, other data than before) and
    :class:`ProtocolFailure` if the study did not start or nothing of it came back.
    """
    with contextlib.ExitStack() as stack:
        if settings.listen_socket is not None:
            stack.enter_context(settings.listen_socket)
        if settings.wipe_value:
            # However it ends; where all goes well this was done before.
            stack.callback(settings.value.fill, 0.0)
        party = settings.roster.find(settings.identity)
        store = settings.open_store()
        stack.callback(store.close)
        # Not before the store is this process' own: another one's status must stay.
        watch = stack.enter_context(_watch(settings, party))
        if (before := kept_result(store)) is not None:
            watch.event({"event": "over", "phase": Phase.CLOSING.label, "waiting_for": []})
            return before
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

    async def ask(self, request: AnyRequest, payload: Payload = b"", on_answer: OnAnswer = lambda answer: None) -> Answer:
        def answered(answer: Answer) -> None:
            on_answer(answer)
            self._told(request, answer)

        return await super().ask(request, payload, answered)


async def _run_session(settings: NodeSettings, party: PartyId, store: Store, watch: Watch) -> NodeResult:
    """A session over TLS: one listener, and a link to each of the others."""
    plan, roster, traffic = settings.plan, settings.roster, watch.traffic
    agreed = Agreed.of(roster, plan)
    target = plan.target
    content = plan.protocol.content_limit(target.parties, target.dimension)
    limits = Limits.of_study(target.parties, plan.protocol.rounds, target.dimension, content, plan.grid)
    credentials = Credentials(settings.identity, roster)

    def endpoint(session: Session) -> Endpoint:
        def heard(peer: PartyId, position: Position) -> None:
            session.whereabouts.heard(peer, position)
            watch.heard(peer, position)

        return Endpoint(party, roster, settings.study, credentials, limits, session.refused, heard, traffic)

    def make_links(session: Session) -> dict[PartyId, Link]:
        return {peer: _WatchedLink(endpoint(session), peer, watch) for peer in range(target.parties) if peer != party}

    async def handle(sender: PartyId, request: AnyRequest, payload: Payload) -> Answer:
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
