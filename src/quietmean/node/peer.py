"""Run one party of a study, from the first connection to the result."""

from __future__ import annotations

import contextlib
from functools import partial

from quietmean.core.party import PartyId
from quietmean.node.monitor import AlreadyOver, Watch
from quietmean.node.net import (
    Answer,
    AnyRequest,
    Credentials,
    Endpoint,
    Limits,
    Link,
    Listener,
    OnAnswer,
    Payload,
    Traffic,
    open_socket,
)
from quietmean.node.phase import Position
from quietmean.node.preflight import Agreed
from quietmean.node.session import NodeResult, NodeSettings, Session, kept_result
from quietmean.node.storage import Store


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
        store = settings.open_store()
        stack.callback(store.close)
        # Not before the store is this process' own: another one's status must stay.
        watch = stack.enter_context(_watch(settings))
        if (before := kept_result(store)) is not None:
            watch.event(AlreadyOver())
            return before
        return await _run_session(settings, store, watch)


def _watch(settings: NodeSettings) -> Watch:
    study = {"study": settings.plan.context.get("study"), "session": settings.study, "protocol": settings.plan.protocol.name}
    return Watch(settings.party, settings.names, study, Traffic(), settings.report, settings.observe, settings.status)


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


async def _run_session(settings: NodeSettings, store: Store, watch: Watch) -> NodeResult:
    """A session over TLS: one listener, and a link to each of the others."""
    party, plan, roster, traffic = settings.party, settings.plan, settings.roster, watch.traffic
    agreed = Agreed.of(roster, plan)
    target = plan.target
    content = plan.protocol.content_limit(plan.parameters, target.parties, target.dimension)
    limits = Limits.of_study(target.parties, plan.protocol.rounds(plan.parameters), target.dimension, content, plan.grid)
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

    session = Session(settings, store, make_links, traffic, watch.event)
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
