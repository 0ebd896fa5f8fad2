"""Many executions of one plan by the same parties, agreed on once: the node of a session.

One party in a series of rounds: one agreement, and an execution of its own for each round.

All parties agree once, before round 1, on nonces and exchange keys. A round is an execution of the plan in which the digest of
(session, number of the round) stands in every label: public seed, own noise and pair noise are those of no other round. A party
says on disk that it begins a round before anything of it leaves, and begins none twice; what is kept of a round is deleted
when the next one begins. Messages go over connections that are kept for all rounds, or are files in a folder.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Protocol, Self

from quietmean.core.errors import ProtocolFailure
from quietmean.node.driver import opened
from quietmean.node.series.party import RoundEnd, SeriesOver, SeriesParty, SeriesProgress
from quietmean.node.series.ways import RoundsByFolder, RoundsOverConnections
from quietmean.node.session import NodeResult, NodeSettings, RetryPolicy, kept_result, retry
from quietmean.node.storage import Store, empty
from quietmean.planning import Admitted
from quietmean.randomness import Seed


class RoundCarrier(Protocol):
    """What carries the messages of all rounds."""

    async def open(self, stack: contextlib.AsyncExitStack) -> None:
        """Reach the others, and agree with them who is in; what is opened is closed with ``stack``. Where the series is over
        here, only what they may still wait for is put.
        """

    async def catch_up(self) -> None:
        """Learn where the others are, if this party may not know it."""

    def is_past(self, number: int) -> bool:
        """Whether the round that was begun last cannot go on any more."""

    async def next_round(self) -> int:
        """The number of the round that this party is in time for, when it is; after the last one if there is none."""

    async def run(self, settings: NodeSettings, store: Store, *, restarted: bool) -> NodeResult:
        """The round that this party has begun, to its result."""

    def drop(self) -> None:
        """What is open, after an outage."""

    def close_round(self, number: int) -> None:
        """Answer nothing of rounds up to this one any more."""


class Series(SeriesParty):
    """Use it in an ``async with`` statement, which returns once all parties agreed, or soon after a restart.

    ``settings``: those of the party in every round, without a value; its roster is sealed with what the parties agreed on, and
    its store is that of the series. ``rounds``: the number of the last one; ``most``: how many this party takes part in.

    Who is in is settled before the first round, for all of them. From then on parties are numbered in these; what connections
    and the start see counts them as the roster does.
    """

    def __init__(self, settings: NodeSettings, rounds: int, most: int | None = None) -> None:
        super().__init__(settings, rounds, rounds if most is None else most)
        self._transport: RoundCarrier
        if settings.folder is None:
            self._transport = RoundsOverConnections(self)
        else:
            self._transport = RoundsByFolder(self, settings.folder)
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with self._stack:
            await self._open()
            self._stack = self._stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    def retire(self) -> None:
        """Leave without taking part again, instead of the ``async with`` statement: no connection is made.

        Raises :class:`InputError` if another process of this party runs.
        """
        self.store = self.settings.open_store()
        with contextlib.closing(self.store):
            self.load()
            if not self.progress.left:
                self.leave()

    async def _open(self) -> None:
        stack = self._stack
        self.store = await stack.enter_async_context(opened(self.settings))
        self.store.keep_journal_short()
        self.load()
        self.restore()
        if self.over:
            await self._transport.open(stack)
            return
        stack.enter_context(self.monitor)
        await self._transport.open(stack)
        if self.begins_none and self._transport.is_past(self.number):
            self.ended = True

    async def mean(self, value: Admitted) -> RoundEnd:
        """Take part in the next round with ``value``, as the plan admits it.

        Raises :class:`SeriesOver` where there is none, and :class:`ProtocolFailure` for a round without a result here, which
        counts as begun. A round that was interrupted goes on if the value is the same; else it is missed.
        """
        if not self.over:
            await self.go_on()
        number = await self._next(value)
        settings, goes_on = self.settings_of(number, value), number == self.progress.current
        self.monitor.identity |= {"number": number, "rounds": self.rounds}

        async def begin() -> Store:
            await self.go_on()
            if number != self.progress.current:
                self.begin(number)
                self._transport.close_round(number - 1)
            elif self.nothing_has_left:
                empty(self.round_store)
            seeds = iter([self.store.seed, Seed(self.store.nonce)])
            return settings.open_store(lambda: next(seeds))

        before, patience = self.monitor.traffic.sent, RetryPolicy(self.monitor.event, settings)
        with contextlib.closing(await retry(begin, self.store.path, patience)) as store:
            result = kept_result(store) or await self._run(settings, store, patience, restarted=goes_on)
        return self.note_end(result, self.monitor.traffic.sent - before)

    async def _run(self, settings: NodeSettings, store: Store, patience: RetryPolicy, *, restarted: bool) -> NodeResult:
        attempts = itertools.count()

        async def attempt() -> NodeResult:
            again = next(attempts) > 0
            if again:
                store.reopen()
                await self.go_on()
            return kept_result(store) or await self._transport.run(settings, store, restarted=restarted or again)

        try:
            result = await retry(attempt, store.path, patience, self._transport.drop)
            self.ended = True
            return result
        except ProtocolFailure:
            self.ended = True
            raise
        finally:
            self._transport.close_round(self.number)

    async def _next(self, value: Admitted) -> int:
        """The round that this party takes part in now. Raises :class:`SeriesOver` if there is none."""
        current = self.progress.current
        await self._transport.catch_up()
        if not self.ended:
            past = self._transport.is_past(current)
            if not past and self.goes_on(value):
                return current
            self.ended = True
            if self.begins_none:
                self.forget_round()
                raise SeriesOver(self.why_over if past else self.why_missed)
        if self.begins_none:
            raise SeriesOver(self.why_over)
        number = await self._transport.next_round()
        if number > self.rounds:
            self.pass_all()
            raise SeriesOver(self.why_over)
        return number


__all__ = ["RoundEnd", "Series", "SeriesOver", "SeriesProgress"]
