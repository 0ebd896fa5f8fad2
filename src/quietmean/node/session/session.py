"""A session: the phases of a study that has started, at one party, whatever the transport: mixing, dissemination, closing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, NoReturn

import numpy as np

from quietmean.core.errors import PeerError, ProtocolFailure
from quietmean.core.party import PartyId
from quietmean.node.monitor import Report
from quietmean.node.net import (
    ACCEPTED,
    REFUSED,
    AnswerFrame,
    AnyRequest,
    CancelTransfer,
    ConfirmTransfer,
    GateLog,
    Heartbeat,
    Log,
    Payload,
    Refusals,
    ResendRequest,
    Start,
    Traffic,
    Transfer,
    Vote,
)
from quietmean.node.phase import Phase, Position
from quietmean.node.session.carrier import Carrier
from quietmean.node.session.context import Context, FailureDetector
from quietmean.node.session.ending import Mixed, execution_of, total_of, unresolved
from quietmean.node.session.gate import Gate, position_of
from quietmean.node.session.inbox import Inbox
from quietmean.node.session.logs import GossipedLogs, PartialLog, PartyLog, Received, decode_log
from quietmean.node.session.reconstruction import encoded_gossip, exchange_logs
from quietmean.node.session.result import NodeResult, keep_refusal, keep_result, note_refusal
from quietmean.node.session.rounds import PhaseRunner
from quietmean.node.session.settings import NodeSettings, public_seed, seed_check
from quietmean.node.storage import Store
from quietmean.node.tasks import Supervisor
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.randomness import ExchangeKey, SecureNoise, Seed

_logger = logging.getLogger("quietmean.node")

_ENDED = "this session has ended with an error"


class StudySession:
    """Sends requests over links, and answers those of others in :meth:`handle`. All durable state is in the store."""

    def __init__(
        self,
        settings: NodeSettings,
        store: Store,
        carrier: Carrier,
        traffic: Traffic,
        report: Report,
        refusals: Refusals | None = None,
        *,
        restarted: bool = False,
    ) -> None:
        """``carrier`` carries requests to the other parties and counts bytes in ``traffic``. ``report`` gets the events.

        ``refusals``: what was refused before, which the result tells, too.
        ``restarted``: a process that died may have been handed messages, even if the store says nothing.
        """
        if settings.agreed is None:
            raise RuntimeError("a session begins when its parties have agreed on the public seed")
        self._settings = settings
        self._store = store
        self._traffic = traffic
        self._refusals = Refusals() if refusals is None else refusals
        plan = settings.plan
        parties, rounds = plan.target.parties, plan.protocol.rounds
        received = store.received_logs()
        self._logs: dict[PartyId, PartyLog] = {other: decode_log(log, parties, rounds) for other, (log, _) in received.items()}
        # Decoded when the schedule is certain.
        self._gossip_of_logs = {other: gossip for other, (_, gossip) in received.items()}
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._rounds = rounds
        self._exchange = ExchangeKey(store.seed)
        self._shared_seeds: dict[PartyId, Seed] = {}
        self._remarks: tuple[str, ...] = ()
        self._carried_out = plan.protocol
        self._nothing_published = False
        self._sending_again: dict[PartyId, asyncio.Task[AnswerFrame]] = {}
        self._restarted = restarted
        self._weights = np.array([settings.openings[party].weight for party in range(parties)], dtype=np.float64)
        self._seed = public_seed(settings.study, settings.openings)
        self._shared = carrier.shared
        self._schedule = self._shared(("schedule", plan, self._seed.secret), lambda: plan.schedule(self._seed))
        self.failure_detector = FailureDetector(settings.waits.round, self._clock, settings.waits.gone)
        self._supervisor = Supervisor()
        changed = asyncio.Event()
        self._context = Context(
            settings=settings,
            store=store,
            inbox=Inbox(
                store,
                settings.party,
                lambda: self._context.agreement,
                changed.set,
                self._merge_gossip,
                rounds,
                plan.grid,
                copies=plan.releases_are_copies,
            ),
            links=carrier.links,
            now=carrier.now,
            failure_detector=self.failure_detector,
            report=report,
            changed=changed,
            fail=self.fail,
            closed=carrier.closed,
            agreement=seed_check(self._seed),
            gossip=GossipedLogs(self._schedule),
        )
        for gossip in store.gossip():
            self._merge_gossip(gossip)
        self._gate = Gate(self._context, carrier, self._merge_gossip)
        if plan.gated and self._mixing_is_over:
            # From the first moment on: who connects learns it, and sends no share any more.
            self._context.inbox.enter((int(Phase.GATE), 0), frozenset())

    @property
    def _mixing_is_over(self) -> bool:
        stored = self._store.state()
        return stored is not None and (stored[0], stored[1]) > (int(Phase.MIXING), self._rounds)

    @property
    def position(self) -> Position:
        return self._context.inbox.position

    @property
    def error(self) -> BaseException | None:
        """What has ended this session, if it was not its own end."""
        return self._supervisor.error

    @property
    def failed(self) -> bool:
        """Whether an error has ended this session: it answers nobody any more."""
        return self.error is not None

    @property
    def closed_to_shares(self) -> bool:
        """Whether it reads no share of a mixing round any more, since a gate follows."""
        return self._gate.closed

    def fail(self, error: BaseException) -> None:
        """End this session with an error of what goes on beside it: a handler, a task, a connection."""
        self._supervisor.fail(error)

    async def run(self) -> NodeResult:
        """Run the study from the first round, or from where the store says that this party was, to the result."""
        try:
            return await self._supervisor.run(self._run())
        finally:
            await self._context.stop()

    async def _run(self) -> NodeResult:
        started = self._clock()
        if self._settings.site.weights is not None and self._store.state() is None:
            # Before anything of the data leaves; what a study has begun with does not change any more.
            own, names = self._settings.brought.weight, self._settings.names
            self._settings.site.weights.refuse(self._settings.plan.target, self._weights, names, own)
        await self._mix()
        if self._settings.plan.gated and self._stored_phase() == Phase.MIXING:
            await self._pass_gate()
        came = await self._disseminate()
        return await self._finalize(came, started)

    def _merge_gossip(self, gossip: bytes) -> None:
        """Take over the encoded logs of a message. Raises :class:`PeerError` for what cannot be read."""
        if gossip:
            self._context.gossip.merge(GossipedLogs.decode(gossip, self._schedule))

    async def _mix(self) -> None:
        if self._stored_phase() > Phase.MIXING:
            self._remarks = self._store.remarks()
            self._forget_input()
            return
        settings, plan = self._settings, self._settings.plan
        noise = SecureNoise(self._store.seed.derive(settings.study, plan.protocol.name), self._shared_seed)
        machine = settings.brought.machine(self._schedule, settings.party, settings.roster, noise)
        shares = plan.protocol.traits.transfers_mass
        runner = PhaseRunner(
            self._context,
            Phase.MIXING,
            machine,
            may_miss=True,
            transfers_mass=shares,
            gossips=shares,
            senders=lambda round_: self._schedule.senders(round_, settings.party),
            gated=plan.gated,
            restarted=self._restarted,
            deals_value=settings.brought.deals_value,
        )
        last = await runner.run()
        ending = plan.protocol.ending(last)
        self._remarks, self._carried_out, self._nothing_published = ending.warnings, ending.protocol, ending.nothing_published
        self._store.keep_remarks(self._remarks)
        self._forget_input()

    async def _pass_gate(self) -> None:
        """Returns if this party publishes what it holds, or others may. Raises :class:`GateRefused` if nobody has a result."""
        record = await self._gate.run(self._schedule, self._seed, self._weights)
        if not (record.published or record.may_pass_elsewhere):
            await self._gate.tell_all()
            raise keep_refusal(self._store, record)

    def _forget_input(self) -> None:
        """Forget the value and the shared seeds, which are not needed again after mixing."""
        self._shared_seeds.clear()
        self._settings.brought.forget()

    def _shared_seed(self, other: PartyId) -> Seed:
        if other not in self._shared_seeds:
            context = f"{self._settings.study} {self._settings.plan.protocol.name}"
            exchange = self._settings.openings[other].exchange
            shared = None if self._settings.keys.pairs is None else self._settings.required_agreement.shared[other]
            self._shared_seeds[other] = self._exchange.shared_seed(exchange, context, shared)
        return self._shared_seeds[other]

    async def _disseminate(self) -> Received:
        if not self._settings.plan.protocol.traits.releases_are_public:
            return Received((self._settings.party,))
        release = self._store.release(Phase.MIXING)
        possible = PossibleReleases.of(self._settings.plan, self._schedule, self._weights)
        machine = self._settings.plan.dissemination_machine(
            self._settings.party, release, self._seed, None if possible is None else possible.cannot_be
        )
        shares = self._settings.plan.dissemination.transfers_mass
        # Releases are public, and late ones are accepted: no round of dissemination is skipped.
        gossips = self._settings.plan.protocol.traits.transfers_mass
        runner = PhaseRunner(
            self._context,
            Phase.DISSEMINATION,
            machine,
            may_miss=False,
            transfers_mass=shares,
            gossips=gossips,
            senders=lambda round_: self._may_have_released(),
            restarted=self._restarted,
        )
        return Received.of(await runner.run())

    def _may_have_released(self) -> frozenset[PartyId]:
        """Who else may have sent its release to a process of this party that died."""
        plan, store = self._settings.plan, self._store
        if not plan.releases_are_copies:
            return frozenset()
        others = plan.protocol.traits.releasers(plan.target.parties) - {self._settings.party}
        if not plan.gated or not store.passed_gate():
            return others
        # More than half voted for the history that this party has. Nobody else passed the gate, and the logs of who did are here.
        until = self._context.gossip.until
        return frozenset(other for other in others if until[other] == self._rounds)

    async def _finalize(self, came: Received, started: float) -> NodeResult:
        plan, store = self._settings.plan, self._store
        log = await exchange_logs(self._context, came, self._logs, gossips=plan.protocol.traits.transfers_mass)
        logs, gossip = self._logs | {self._settings.party: log}, self._all_gossip()
        mixed = Mixed(self._carried_out, self._weights, self._remarks, self._nothing_published)
        execution = execution_of(plan, (self._schedule, self._seed), mixed, (logs, came.parties, gossip), self._shared)
        trace = execution.trace
        known_until = {party: partial.until for party, partial in gossip.items()} | dict.fromkeys(logs, self._rounds)
        # Push-sum does not record whose releases are in its sums: all that were made are.
        heard_from = came.heard or tuple(np.nonzero(trace.finished)[0].tolist())
        gate = self._gate.record(published=bool(store.passed_gate())) if plan.gated else None
        try:
            total = total_of(self._settings, store, heard_from, mixed)
        except ProtocolFailure:
            if gate is None or gate.published:
                raise
            raise keep_refusal(store, gate) from None
        result = NodeResult(
            total_vector=total.vector,
            total_weight=total.weight,
            heard=heard_from,
            execution=execution,
            public_seed=self._seed.secret.hex(),
            transfers=len(store.arrived_there(Phase.MIXING)) + len(store.arrived_there(Phase.DISSEMINATION)),
            bytes_sent=self._traffic.sent,
            bytes_received=self._traffic.received,
            seconds=self._clock() - started,
            late=tuple(self._context.late),
            refusals=self._refusals.lines(),
            remarks=self._remarks,
            silent=tuple(party for party in self._context.others if party not in self._logs),
            unresolved=unresolved(plan, store, known_until),
            known_until=tuple(known_until.get(party, 0) for party in range(len(self._settings.names))),
            gate=gate,
            audits=tuple((party, log.audit) for party, log in sorted(self._logs.items()) if log.audit),
            impossible=came.left_out,
            equivocating=came.equivocating(self._logs),
            not_there=came.not_there(self._logs),
        )
        keep_result(store, Phase.DISSEMINATION if plan.protocol.traits.releases_are_public else Phase.MIXING, result)
        return result

    def _all_gossip(self) -> dict[PartyId, PartialLog]:
        """All gossiped logs, those included that came with the final logs."""
        for sender, gossip in self._gossip_of_logs.items():
            try:
                self._merge_gossip(gossip)
            except PeerError as error:
                self.refused(self._settings.names[sender], str(error))
        return self._context.gossip.logs()

    def _stored_phase(self) -> int:
        stored = self._store.state()
        return Phase.AGREEMENT if stored is None else stored[0]

    def heard(self, peer: PartyId, position: Position) -> None:
        """Where a peer says that it is, with a greeting or an answer."""
        self.failure_detector.heard(peer, position)

    def left(self, peer: PartyId) -> None:
        """A peer is past this whole session: a wait for it is over."""
        self.failure_detector.leave(peer)
        self._context.changed.set()

    def handed(self, sender: PartyId, transfer: Transfer) -> None:
        """A message of ``sender`` came before this session began, and could be read; it comes again, or was taken back."""
        if transfer.agreement == self._context.agreement:
            self._context.inbox.note_seen([((transfer.phase, transfer.round), sender)])

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        """The answer to a request of ``sender``. Raises :class:`PeerError` for what a correct peer never requests.

        Any other error ends this session, and the request stays unanswered, here for good: ConnectionAbortedError. On its next
        connection the peer sends it again.
        """
        if (answer := self.handle_now(sender, request, payload)) is not None:
            return answer
        try:
            return await self._answer_later(sender, request, payload)
        except Exception as error:
            self._end_by(sender, error)

    def handle_now(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        """The answer, and None where something has to be waited for first. Raises as :meth:`handle`."""
        if self.failed:
            raise ConnectionAbortedError(_ENDED)
        try:
            return self._answer(sender, request, payload)
        except Exception as error:
            self._end_by(sender, error)

    def _end_by(self, sender: PartyId, error: Exception) -> NoReturn:
        """Raise what an error in a handler is for the sender: a :class:`PeerError` is of its making."""
        if isinstance(error, PeerError):
            self._context.found_faulty(sender)
            raise error
        self.fail(error)
        raise ConnectionAbortedError(_ENDED) from error

    def _answer(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame | None:
        context = self._context
        position = position_of(request)
        context.failure_detector.heard(sender, position)
        self._gate.heard(sender, position)
        match request:
            case Transfer():
                if context.inbox.is_early(request):
                    return None
                answer = context.inbox.take(sender, request, payload)
                context.failure_detector.delivered(sender)
                return answer
            case CancelTransfer():
                return context.inbox.cancel(sender, request)
            case ConfirmTransfer():
                return context.inbox.confirm(sender, request)
            case ResendRequest():
                return None
            case Log():
                raw = bytes(payload)
                log = decode_log(raw, len(self._settings.names), self._rounds)
                self._take_log(sender, log, raw, request.gossip)
            case GateLog() | Vote():
                self._take_at_gate(sender, request, payload)
            case Start():
                raise PeerError("it tells who is in, which is settled in this study")
            case Heartbeat():
                # Its position was noted above; the answer carries this party's.
                context.changed.set()
                if position_of(request) < self._store.latest_from(sender):
                    return AnswerFrame(request.number, REFUSED, *context.inbox.position, reason="it was in a later round before")
        return AnswerFrame(request.number, ACCEPTED, *context.inbox.position)

    async def _answer_later(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        context = self._context
        if isinstance(request, ResendRequest):
            return AnswerFrame(request.number, await self._send_again(sender, request), *context.inbox.position)
        if not isinstance(request, Transfer):
            raise TypeError(f"{type(request).__name__} is answered at once")
        answer = await context.inbox.transfer(sender, request, payload)
        context.failure_detector.delivered(sender)
        return answer

    async def _send_again(self, receiver: PartyId, request: ResendRequest) -> Literal["ok", "no"]:
        """Send the own release to a party that was away, once this party has finished dissemination; one sending at a time."""
        context, plan, position = self._context, self._settings.plan, (request.phase, request.round)
        over = position == (int(Phase.DISSEMINATION), 1) and context.inbox.position[0] == Phase.FINALIZATION
        if not over or not plan.releases_are_copies:
            return REFUSED
        sending = self._sending_again.get(receiver)
        if sending is None or sending.done():
            message = self._store.own_release()
            if message is None:
                return REFUSED
            gossip = encoded_gossip(context, context.inbox.position) if plan.protocol.traits.transfers_mass else b""
            asking = context.links[receiver].ask(context.transfer(position, message, gossip), message.payload)
            sending = self._sending_again[receiver] = context.spawn(asking)
        # Repeated requests, over a new connection for example, wait for the same sending.
        answer: AnswerFrame = await asyncio.shield(sending)
        return answer.status

    def _take_log(self, sender: PartyId, log: PartyLog, payload: bytes, gossip: bytes) -> None:
        if (self._logs.get(sender), self._gossip_of_logs.get(sender)) != (log, gossip):
            self._store.save_log(sender, payload, gossip)
        self._logs[sender], self._gossip_of_logs[sender] = log, gossip
        self._context.changed.set()

    def _take_at_gate(self, sender: PartyId, request: GateLog | Vote, payload: Payload) -> None:
        if not self._settings.plan.gated:
            raise PeerError("it is at a gate that this study does not have")
        if isinstance(request, GateLog):
            self._gate.take_log(sender, request, payload)
        else:
            self._gate.take_vote(sender, request)

    def refused(self, peer: str, reason: str) -> None:
        """Log a refusal by either side, once for each cause. ``peer``: a name or an address."""
        note_refusal(self._refusals, self._context.report, peer, reason)
