"""A client's side: the party machine of one round after the other, driven by a server that is not trusted.

The server decides what arrives and when, and nothing else: a frame that is not from its sender, for this step of this round, has
not arrived. Each step is taken once: it is on disk before its answer is sent, and asked again the client says the same bytes.
A client that missed steps passes over them, as a party that was cut off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from quietmean.core.codec import decode, dump_state, load_state
from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId, PartyMachine, Release, Step, Vector
from quietmean.flower.sealing import (
    AskHello,
    BeginRequest,
    ClientAnswer,
    ClientKeys,
    Deliver,
    Finish,
    Request,
    Seals,
    read_hello,
    read_request,
    signed_hello,
    write,
)
from quietmean.flower.site import FlowerAdmission, Home, Paid, site_options, tell
from quietmean.graphs import ExecutionTrace
from quietmean.ledger import Account
from quietmean.node import SeriesProgress
from quietmean.planning.influence import ImpossibleResult, ReleasedSum, require_possible
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import decoded
from quietmean.randomness import SecureNoise, Seed
from quietmean.sessions import SessionAccount
from quietmean.sessions.receipt import settle
from quietmean.sessions.round_mean import clipped_vector
from quietmean.studies.party import Grant

# The update (d,) of this client for the round that begins.
Update = Callable[[], Vector]


class PartyOutcome(msgspec.Struct, frozen=True):
    """A release on disk."""

    total: bytes
    weight: float

    @classmethod
    def of(cls, release: Release) -> PartyOutcome:
        return cls(release.vector.astype("<f8").tobytes(), release.weight)

    @property
    def vector(self) -> Vector:
        return np.frombuffer(self.total, dtype="<f8").astype(np.float64)


class Stored(msgspec.Struct, omit_defaults=True):
    """The session on disk. ``step``: the step of the round that the last answer closed, 0 for its beginning."""

    agreement: str
    seed: bytes
    peers: dict[int, bytes] = {}
    round: int = 0
    step: int = 0
    value: bytes = b""
    state: bytes = b""
    release: PartyOutcome | None = None
    answer: bytes = b""
    over: bool = True
    # What its site has to do with it: of the rounds before this one with a mean, how many, and in how many each client counted.
    paid: Paid | None = None
    logged: list[str] = []
    results: int = 0
    counted: list[int] = []
    ended: bool = False


class StarParty:
    """One client of a session. Raises :class:`InputError` where its folder or a request is not as it should be."""

    def __init__(self, home: Home) -> None:
        self._home, self._agreement, self._party = home, home.agreement, home.party
        self._plan = home.agreement.terms.plan
        with home.locked():
            self._stored = self._load()

    def answer(self, raw: bytes, update: Update) -> bytes:
        """The answer to one request of the server; ``update`` is asked for when a round begins.

        What goes wrong with a request is said in the answer, in a sentence without any value.
        """
        try:
            request = read_request(raw)
            with self._home.locked():
                self._stored = self._load()
                with self._at_its_site():
                    self._require_part(request)
                return self._answer(request, update)
        except InputError as error:
            return write(ClientAnswer(refused=str(error)))

    def leave(self) -> Account | None:
        """Begin no other round, ever: rounds that never began are given back, and the receipt is written.

        Raises :class:`InputError` for a client that never said yes.
        """
        with self._home.locked():
            self._stored = self._load()
            self._grant()
            if not self._stored.ended:
                self._close(ClientAnswer(), self._agreement.terms.rounds)
            return self._settle()

    # --- its site ---

    def _require_part(self, request: Request) -> None:
        """The policy allows the agreement, its person said yes, and it is paid for. Raises :class:`InputError` if not."""
        stored = self._stored
        if stored.paid is not None and not isinstance(request, BeginRequest):
            return
        site = self._site()
        try:
            site.allow()
            if stored.paid is None:
                stored.paid = site.pay(Seed(stored.seed).derive("charge").secret)
        finally:
            self._write()

    def _site(self) -> FlowerAdmission:
        stored = self._stored
        return FlowerAdmission(self._home, site_options(self._home.site), stored.logged, yes=stored.paid is not None)

    def _grant(self) -> Grant:
        if self._stored.paid is None:
            raise InputError(
                f"the client of {self._home.folder} has taken part in nothing, and nothing is charged. Leave it out."
            )
        return self._site().grant(self._stored.paid)

    @contextlib.contextmanager
    def _at_its_site(self) -> Iterator[None]:
        """What goes wrong there may name files and rules: it is said there, and to the server that the client is not in."""
        try:
            yield
        except InputError as error:
            tell(str(error))
            raise InputError("the site of this client does not take part. See its own log, which says why.") from None

    def _settle(self) -> Account | None:
        """Settle the session after the last round: first it says that none follows, then ledger and receipt."""
        stored = self._stored
        begun = SessionAccount(self._agreement.terms, self._home.account).begun
        counted = tuple(stored.counted) or (0,) * self._agreement.parties
        progress = SeriesProgress(current=stored.round, begun=begun, results=stored.results, counted=counted, left=True)
        account = settle(self._grant(), self._home.contract, None, progress)
        stored.ended = True
        self._write()
        return account

    def _answer(self, request: Request, update: Update) -> bytes:
        if isinstance(request, AskHello):
            return write(ClientAnswer(hello=signed_hello(self._agreement, self._home.identity, self._keys.public)))
        if isinstance(request, BeginRequest):
            return self._begin(request, update)
        if request.round != self._stored.round:
            raise InputError(
                f"this client is in round {self._stored.round}, not in round {request.round}. Wait for the next round."
            )
        if isinstance(request, Deliver):
            return self._deliver(request)
        return self._finish(request)

    # --- rounds ---

    def _begin(self, request: BeginRequest, update: Update) -> bytes:
        stored = self._stored
        if request.round == stored.round and stored.step == 0 and stored.answer:
            return stored.answer
        if not stored.round < request.round <= self._agreement.terms.rounds:
            raise InputError(
                f"round {request.round} cannot begin, as this client has had round {stored.round} of "
                f"{self._agreement.terms.rounds}. Begin the next round."
            )
        self._meet(request.hellos)
        value = self._admitted(update())
        with self._at_its_site():
            self._grant().started(round=request.round)
            SessionAccount(self._agreement.terms, self._home.account).begin()
        stored.round, stored.value, stored.over = request.round, value.astype("<f8").tobytes(), False
        return self._keep(self._machine.start(), 0)

    def _deliver(self, request: Deliver) -> bytes:
        stored, machine = self._stored, self._machine
        if request.step == stored.step and stored.answer:
            return stored.answer
        if stored.over or not stored.step < request.step <= machine.rounds:
            raise InputError(f"step {request.step} of round {request.round} is over for this client. Wait for the next round.")
        state = load_state(machine.state_type, stored.state)
        if state.round < request.step:
            # What it was to send before has reached nobody: it was not there.
            while state.round <= request.step:
                step = machine.miss_round(state)
                state = step.state
            return self._keep(step, request.step)
        received = [message for sender, frame in sorted(request.frames.items()) for message in self._open(request, sender, frame)]
        delivered = frozenset(request.present) & self._stored.peers.keys()
        return self._keep(machine.end_round(state, received, delivered), request.step)

    def _finish(self, request: Finish) -> bytes:
        stored = self._stored
        if not stored.over:
            self._conclude()
        if stored.round >= self._agreement.terms.rounds and not stored.ended:
            # The mean is not lost to a ledger that cannot be written: it is settled when the client is asked again, or leaves.
            with contextlib.suppress(InputError), self._at_its_site():
                self._settle()
        return stored.answer

    def _conclude(self) -> None:
        stored, machine = self._stored, self._machine
        state, release = load_state(machine.state_type, stored.state), stored.release
        while state.round <= machine.rounds:
            step = machine.miss_round(state)
            state, release = step.state, None if step.release is None else PartyOutcome.of(step.release)
        answer = ClientAnswer()
        if release is not None:
            execution = self._execution(state)
            try:
                require_possible(self._plan, execution, ReleasedSum(release.vector, release.weight))
            except ImpossibleResult as error:
                answer = ClientAnswer(refused=str(error))
            else:
                mean = decoded(self._plan.protocol, self._agreement.parties, release.vector, release.weight)
                mean = mean * self._agreement.study.clip
                answer = ClientAnswer(mean=mean.astype("<f8").tobytes(), weight=release.weight)
                before = stored.counted or [0] * self._agreement.parties
                stored.counted = [times + bool(inside) for times, inside in zip(before, execution.contributors(), strict=True)]
                stored.results += 1
        self._close(answer, stored.round)

    def _close(self, answer: ClientAnswer, round_: int) -> None:
        """Forget a round that is over: nothing private is kept."""
        stored = self._stored
        stored.over, stored.value, stored.state, stored.release = True, b"", b"", None
        stored.round, stored.answer, stored.step = round_, write(answer), self._plan.protocol.rounds + 1
        self._write()

    def _execution(self, state: Any) -> Execution:
        """The round as this client has it at its end."""
        everyone = ExecutionTrace.everyone(self._plan.protocol.rounds, self._agreement.parties)
        seed = Seed.public("flower schedule", self._agreement.digest, self._stored.round)
        return replace(self._plan.execution(seed, everyone), protocol=self._plan.protocol.ending(state).protocol)

    def _keep(self, step: Step[Any], closed: int) -> bytes:
        """The step on disk, and only then its answer."""
        stored, machine = self._stored, self._machine
        own: dict[PartyId, list[Message]] = {}
        for message in step.send:
            for other in message.recipients:
                own.setdefault(other, []).append(message)
        number = step.state.round
        sealed = {other: self._seals.seal(stored.round, number, other, messages) for other, messages in sorted(own.items())}
        frames = {other: frame for other, frame in sealed.items() if frame is not None}
        idle = number > machine.rounds or not machine.expects(step.state)
        stored.step, stored.state = closed, dump_state(step.state)
        stored.release = None if step.release is None else PartyOutcome.of(step.release)
        stored.answer = write(ClientAnswer(step=number, frames=frames, idle=idle))
        self._write()
        return stored.answer

    # --- what it has ---

    @cached_property
    def _keys(self) -> ClientKeys:
        return ClientKeys(Seed(self._stored.seed), self._agreement.study.keyed_by)

    @cached_property
    def _seals(self) -> Seals:
        return Seals(self._agreement, self._party, self._keys, self._peer)

    def _peer(self, other: PartyId) -> bytes | None:
        return self._stored.peers.get(other)

    @property
    def _machine(self) -> PartyMachine[Any]:
        stored = self._stored
        value = np.frombuffer(stored.value, dtype="<f8").astype(np.float64)
        noise = SecureNoise(round_seed(Seed(stored.seed), stored.round))
        return self._plan.protocol.machine(self._agreement.schedule(stored.round), self._party, value, 1.0, noise)

    def _admitted(self, update: Vector) -> Vector:
        """Move a value into the plan's domain. Raises :class:`InputError` for another shape."""
        shape = (self._agreement.terms.dimension,)
        if update.shape != shape:
            raise InputError(f"the update has shape {update.shape} and the agreement {shape}. Agree on this model.")
        return self._plan.admit(clipped_vector(update, self._agreement.study.clip)).vector

    def _open(self, request: Deliver, sender: PartyId, frame: bytes) -> list[Message]:
        return self._seals.open(request.round, request.step, sender, frame) or []

    def _meet(self, hellos: tuple[bytes, ...]) -> None:
        """The first key that a client signed is its key for the whole session."""
        for raw in hellos:
            hello = read_hello(self._agreement, raw)
            if hello is not None and hello.party != self._party:
                self._stored.peers.setdefault(hello.party, hello.exchange)

    def _load(self) -> Stored:
        raw = self._home.read()
        if raw is None:
            fresh = Stored(self._agreement.digest, Seed.from_os().secret)
            self._home.write(msgspec.msgpack.encode(fresh))
            return fresh
        stored = decode(
            raw,
            Stored,
            lambda reason: InputError(f"the session in {self._home.folder} cannot be read. Agree anew, with a new folder."),
        )
        if stored.agreement != self._agreement.digest:
            raise InputError(f"the session in {self._home.folder} is of another agreement. Use a new folder for a new one.")
        return stored

    def _write(self) -> None:
        self._home.write(msgspec.msgpack.encode(self._stored))


def round_seed(seed: Seed, round_: int) -> Seed:
    """All randomness of one party in one round of a session."""
    return seed.derive("flower round", round_)


def leave(folder: str | Path) -> Account | None:
    """End the part of the client in ``folder`` for good: it begins no other round, and those that never began are given back.

    The receipt is written, and the account returned as it is then; None where nothing was charged. Raises :class:`InputError` for
    a client that never said yes.
    """
    return StarParty(Home(folder)).leave()
