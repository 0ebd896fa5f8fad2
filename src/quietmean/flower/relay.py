"""The server's side: it hands sealed frames on, step by step, until the clients conclude. It is not trusted with anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PartyId, Vector
from quietmean.flower.agreement import FlowerAgreement
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
