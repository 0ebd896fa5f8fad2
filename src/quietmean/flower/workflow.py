"""Flower's grid: the server that hands sealed frames on, its rounds of private means, and the mod of a client app."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.flower.agreement import FlowerAgreement
from quietmean.flower.party import StarParty
from quietmean.flower.sealing import (
    AskHello,
    BeginRequest,
    ClientAnswer,
    Deliver,
    Finish,
    Request,
    read_answer,
    require_hello,
    write,
)
from quietmean.flower.site import Home

# Requests by node, and whether the model goes along; answers by node, of those that answered in time.
Exchange = Callable[[Mapping[int, bytes], bool], Mapping[int, bytes]]


@dataclass(frozen=True, eq=False)
class ClientsMean:
    """The mean of the updates of clients in one round.

    ``mean``: shape (d,), of the updates of ``weight`` clients, with noise. ``missing``: parties that left or never came.

    ``steps``: of the protocol, each of which is one exchange with all clients. ``refusals``: what clients gave as reasons.
    """

    round: int
    mean: Vector
    weight: float
    missing: tuple[PartyId, ...]
    steps: int
    refusals: tuple[str, ...] = ()


class Relay:
    """Carries rounds of a session between the nodes of a star."""

    def __init__(self, agreement: FlowerAgreement, exchange: Exchange) -> None:
        self._agreement, self._exchange = agreement, exchange
        self._nodes: dict[PartyId, int] = {}
        self._hellos: dict[PartyId, bytes] = {}
        self._refusals: list[str] = []

    @property
    def parties(self) -> Mapping[PartyId, int]:
        """The node of each client that is known."""
        return dict(self._nodes)

    @property
    def reasons(self) -> str:
        """Return why clients were refused since the last round, as text; empty if no client was."""
        return _reasons(self._refusals)

    def meet(self, nodes: Iterable[int], exchange: Exchange | None = None) -> None:
        """Ask nodes that are not known yet who they are, by the relay's own exchange or by another.

        Raises :class:`InputError` if one has another agreement.
        """
        met = set(self._nodes.values())
        raw = write(AskHello())
        for node, answer in self._ask({node: raw for node in nodes if node not in met}, exchange=exchange).items():
            hello = require_hello(self._agreement, answer.hello)
            self._nodes[hello.party], self._hellos[hello.party] = node, answer.hello

    def mean(self, round_: int) -> ClientsMean:
        """One round, numbered from 1. Raises :class:`ProtocolFailure` if it has no result."""
        hellos = tuple(self._hellos.values())
        answers = self._answers_to({party: BeginRequest(round_, hellos) for party in self._nodes}, begins=True)
        steps = 0
        while _goes_on(answers):
            steps += 1
            answers = self._answers_to({party: self._delivery(round_, steps, party, answers) for party in answers})
        ended = self._answers_to({party: Finish(round_) for party in answers})
        return self._concluded(round_, steps, ended)

    def _delivery(self, round_: int, step: int, party: PartyId, answers: Mapping[PartyId, ClientAnswer]) -> Deliver:
        frames = {other: answer.frames[party] for other, answer in answers.items() if party in answer.frames}
        return Deliver(round_, step, frames, tuple(other for other in answers if other != party))

    def _concluded(self, round_: int, steps: int, ended: Mapping[PartyId, ClientAnswer]) -> ClientsMean:
        """What most say: those that lie are fewer."""
        refusals, self._refusals = self._refusals, []
        votes = Counter((end.mean, end.weight) for end in ended.values() if end.mean)
        (mean, weight), count = votes.most_common(1)[0] if votes else ((b"", 0.0), 0)
        colluding, parties = self._agreement.terms.colluding, self._agreement.parties
        decoded = np.frombuffer(mean, dtype="<f8").astype(np.float64) if len(mean) % 8 == 0 else np.empty(0)
        if count <= colluding or decoded.shape != (self._agreement.terms.dimension,):
            raise ProtocolFailure(
                f"round {round_} has no result: {len(ended)} of {parties} clients were there to its end{_reasons(refusals)}"
            )
        missing = tuple(party for party in range(parties) if party not in ended)
        return ClientsMean(round_, decoded, weight, missing, steps, tuple(refusals))

    def _answers_to(self, requests: Mapping[PartyId, Request], begins: bool = False) -> dict[PartyId, ClientAnswer]:
        answers = self._ask({self._nodes[party]: write(request) for party, request in requests.items()}, begins)
        return {party: answers[self._nodes[party]] for party in requests if self._nodes[party] in answers}

    def _ask(
        self, requests: Mapping[int, bytes], begins: bool = False, exchange: Exchange | None = None
    ) -> dict[int, ClientAnswer]:
        """The answers that can be read; who refuses is as one that is not there."""
        answers = {}
        for node, raw in (exchange or self._exchange)(requests, begins).items() if requests else ():
            try:
                answer = read_answer(raw)
            except InputError as error:
                answer = ClientAnswer(refused=str(error))
            if answer.refused:
                self._refusals.append(answer.refused)
            elif node in requests:
                answers[node] = answer
        return answers


def _reasons(refusals: Iterable[str]) -> str:
    return "".join(f"; a client says: {reason}" for reason in sorted(set(refusals)))


def _goes_on(answers: Mapping[PartyId, ClientAnswer]) -> bool:
    """Whether anybody who is there expects anything, or has anything for somebody who is there."""
    return any(not answer.idle or not answers.keys().isdisjoint(answer.frames) for answer in answers.values())


# The record of requests and answers, and its field.
RECORD, FIELD = "quietmean", "said"
# In a SuperNode's --node-config: the client's folder. In a simulation, a run's setting: the folder of all clients' folders.
HOME, HOMES = "quietmean-home", "quietmean-homes"

ClientApp = Callable[[Any, Any], Any]


def _flwr() -> Any:
    """Return Flower's messages and records, in an environment that has them."""
    from flwr import app

    return app


def quietmean_mod(message: Any, context: Any, call_next: ClientApp) -> Any:
    """A Flower mod. Of a round it asks the app's ``train`` once, for the model that came along, and sends the difference sealed.

    Messages of a :class:`SealedMean` are answered here; others go to the app as they are. What the app returns besides its
    arrays, and what it raises, stays on this machine.
    """
    if RECORD not in message.content:
        return call_next(message, context)
    try:
        party = StarParty(Home(_folder(context)))
        raw = party.answer(message.content[RECORD][FIELD], lambda: _update(message, context, call_next))
    except InputError as error:
        raw = write(ClientAnswer(refused=str(error)))
    except Exception as error:  # Its text may hold values: Flower would send it to the server.
        raw = write(ClientAnswer(refused=f"the client's app failed ({type(error).__name__}). See its log on that machine"))
    flwr = _flwr()
    return flwr.Message(flwr.RecordDict({RECORD: flwr.ConfigRecord({FIELD: raw})}), reply_to=message)


def flat(arrays: Any) -> Vector:
    """All numbers of an ArrayRecord in one vector (d,), in the order of its arrays."""
    parts = [np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays.to_numpy_ndarrays()]
    vector: Vector = np.concatenate(parts) if parts else np.empty(0)
    return vector


def _update(message: Any, context: Any, call_next: ClientApp) -> Vector:
    """What training changed in the model of the message, shape (d,)."""
    kind = _flwr().ArrayRecord
    model = _arrays(message.content, kind)
    before = flat(model)
    del message.content[RECORD]
    reply = call_next(message, context)
    if not reply.has_content():
        raise InputError("the client's app answered without content. Let its train return the arrays of the model.")
    after = flat(_arrays(reply.content, kind))
    if before.shape != after.shape:
        raise InputError(f"the client's app turned {before.size} numbers into {after.size}. Return the arrays of the same model.")
    return after - before


def _arrays(content: Any, kind: type[Any]) -> Any:
    matching = [record for record in content.values() if isinstance(record, kind)]
    if len(matching) != 1:
        raise InputError(f"a message has {len(matching)} records of arrays. Send the model in one.")
    return matching[0]


def _folder(context: Any) -> Path:
    own = context.node_config.get(HOME)
    if own is not None:
        return Path(str(own)).expanduser()
    homes, number = context.run_config.get(HOMES), context.node_config.get("partition-id")
    if homes is None or number is None:
        raise InputError(f"this client has no folder. Start its SuperNode with --node-config '{HOME}=\"...\"'.")
    return Path(str(homes)) / str(int(number))


# Seconds.
_LOOK_AGAIN = 0.5
# What Flower shows of a run to who started it.
_shown = logging.getLogger("flwr")


class SealedMean:
    """Means of clients' updates through a Flower ``grid``.

    ``timeout``: seconds that a client has for one step, training apart, for which ``training`` seconds are given; one that takes
    longer is missing in this round. ``bytes_sent`` counts what clients sent in answers.
    """

    def __init__(self, grid: Any, agreement: FlowerAgreement, *, timeout: float = 60.0, training: float = 600.0) -> None:
        self._grid, self._agreement = grid, agreement
        self._timeout, self._training = timeout, training
        self._relay = Relay(agreement, self._exchange)
        self._model: Any = None
        # Nodes that have not said who they are, by the message that asks them.
        self._asked: dict[str, int] = {}
        self.bytes_sent = 0

    def wait(self, timeout: float = 300.0) -> None:
        """Wait until all clients of the agreement are there, ``timeout`` seconds at most.

        Raises :class:`ProtocolFailure` if fewer are there by then than the agreement plans for, with what those that refuse say.
        """
        until, parties = time.monotonic() + timeout, self._agreement.parties
        least = parties - int(self._agreement.terms.dropouts * parties)
        before = -1
        while True:
            self._relay.meet(self._grid.get_node_ids(), self._look)
            there = len(self._relay.parties)
            if there != before:
                _shown.info("%d of %d clients are there", there, parties)
                before = there
            if there == parties or (time.monotonic() >= until and there >= least):
                return
            if time.monotonic() >= until:
                raise ProtocolFailure(
                    f"{there} of {parties} clients are there after {timeout:g} s, and the agreement plans for {least} or more. "
                    f"See whether their SuperNodes run{self._relay.reasons}."
                )
            time.sleep(_LOOK_AGAIN)

    def mean(self, round_: int, arrays: Any) -> ClientsMean:
        """One round, numbered from 1: clients train from ``arrays``, and the mean of their updates is returned.

        Raises :class:`InputError` for a model of another size than was agreed on, and :class:`ProtocolFailure` for a round
        without a result.
        """
        size = flat(arrays).size
        if size != self._agreement.terms.dimension:
            raise InputError(
                f"the model has {size} numbers and the agreement {self._agreement.terms.dimension}. Agree on this one."
            )
        self._model = arrays
        self._relay.meet(self._grid.get_node_ids())
        return self._relay.mean(round_)

    def step(self, round_: int, arrays: Any) -> tuple[Any, ClientsMean]:
        """The model after one round, as an ArrayRecord of the same arrays, and the mean that was added to it."""
        flwr, result = _flwr(), self.mean(round_, arrays)
        moved, start = [], 0
        for array in arrays.to_numpy_ndarrays():
            part = result.mean[start : start + array.size].reshape(array.shape)
            moved.append((array + part).astype(array.dtype))
            start += array.size
        return flwr.ArrayRecord(dict(zip(arrays, map(flwr.Array, moved), strict=True))), result

    def _look(self, requests: Mapping[int, bytes], begins: bool) -> Mapping[int, bytes]:
        """Answers that have come by now: a node that is dead keeps nobody waiting."""
        asked = set(self._asked.values())
        self._asked |= self._send({node: raw for node, raw in requests.items() if node not in asked}, begins)
        return self._received(self._asked)

    def _exchange(self, requests: Mapping[int, bytes], begins: bool) -> Mapping[int, bytes]:
        until = time.monotonic() + (self._training if begins else self._timeout)
        sent = self._send(requests, begins)
        answers: dict[int, bytes] = {}
        while True:
            late = time.monotonic() >= until
            answers |= self._received(sent)
            if late or not sent:
                return answers
            time.sleep(_LOOK_AGAIN)

    def _send(self, requests: Mapping[int, bytes], begins: bool) -> dict[str, int]:
        """Nodes by the message that went to them."""
        flwr, messages = _flwr(), []
        for node, raw in requests.items():
            content: dict[str, Any] = {RECORD: flwr.ConfigRecord({FIELD: raw})}
            if begins:
                content["arrays"] = self._model
            messages.append(flwr.Message(flwr.RecordDict(content), dst_node_id=node, message_type="train"))
        identifiers = self._grid.push_messages(messages) if messages else ()
        return {identifier: node for identifier, node in zip(identifiers, requests, strict=False) if identifier is not None}

    def _received(self, sent: dict[str, int]) -> dict[int, bytes]:
        """Answers by node, taken out of ``sent`` together with what failed."""
        answers: dict[int, bytes] = {}
        for reply in self._grid.pull_messages(list(sent)) if sent else ():
            node = sent.pop(reply.metadata.reply_to_message_id, None)
            if node is None or reply.has_error() or RECORD not in reply.content:
                continue
            answer = reply.content[RECORD].get(FIELD)
            if isinstance(answer, bytes):
                answers[node] = answer
                self.bytes_sent += len(answer)
        return answers
