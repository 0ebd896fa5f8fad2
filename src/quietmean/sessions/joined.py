"""One party's part in a session between machines: the yes, the charge for all rounds, the rounds, the receipt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, NotStarted, ProtocolFailure
from quietmean.core.party import Vector
from quietmean.core.readable import count_of, delta_shown, epsilon_shown, epsilon_text
from quietmean.core.site_options import SiteOptions
from quietmean.ledger import Account
from quietmean.node import RoundEnd, Series
from quietmean.node.monitor import status_at
from quietmean.planning import Admitted
from quietmean.planning.influence import require_possible
from quietmean.sessions.receipt import receipt_at, settle
from quietmean.sessions.round_mean import RoundMean, checked_clip, clipped_rows, clipped_vector, numbers_of
from quietmean.studies.outcome.outcome import opened_of
from quietmean.studies.party import NodeAdmission, NodeGrant, PartyContext, Person, not_started, require_places
from quietmean.studies.party.admission import require_account
from quietmean.studies.party.audit import Event
from quietmean.studies.party.session_contract import PartOfSession, SessionContract

Result = TypeVar("Result")
Kind = type[BaseException] | None


class SessionPreparation(NodeAdmission):
    """One party's way into a session: :meth:`agree`, then :meth:`prepare`."""

    def __init__(self, files: PartyContext, options: SiteOptions, person: Person) -> None:
        require_account(options)
        super().__init__(files, options, "", person)

    def agree(self) -> SessionContract:
        """The yes. Raises :class:`InputError` without one, and for a session that the policy does not allow."""
        files, options, contract = self.files, self.options, self.files.session
        self.examine(contract)
        files.require_transport(options, self.policy.folder)
        self._receipt, store = files.receipt(options.receipt), files.store(options.store)
        require_places([receipt_at(self._receipt, contract), status_at(store)], store)
        self.consent()
        return contract

    def prepare(self, most: int | None = None, records: int | None = None) -> NodeGrant:
        """The charge for all rounds, before anything leaves this machine.

        ``most``: take part in so many rounds and pay for no more. ``records``: how many this party has, which is public, where
        records are protected. Raises :class:`InputError` for a session that the budget does not allow.
        """
        files, contract = self.files, self.files.session
        most = contract.rounds if most is None else most
        if not 1 <= most <= contract.rounds:
            raise InputError(f"most is {most}. Choose 1 to {contract.rounds}, the rounds of the session.")
        settings = self.for_person(files.without_records(self.options, records, self.policy.folder))
        # Of rounds that never begin nothing leaves: what was reserved for them is given back.
        settings, charge = self.pay(settings, contract.charge_of(most), refund=True)
        return NodeGrant(contract, self.approval, charge, self.auditor, self._receipt, most, files=files, settings=settings)


class LoopThread:
    """An event loop in a thread of its own, so that others are answered while this program computes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="quietmean session", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """What still runs is cancelled, and ends before this returns."""
        self.start(self._end_all()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _end_all() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class JoinedSession:
    """The rounds of a session for one party, in a thread of their own, for as long as a ``with`` or an ``async with`` statement.

    The normal end of the statement is the end of this party's part, for good: rounds that it never began are given back then, and
    the receipt is written. Where it ends by an exception, Ctrl-C for example, the part can be continued from its store.
    ``receipt``: the file with the certificate of all rounds, once the session has ended here; ``account``: the ledger's, then.
    """

    def __init__(self, ready: NodeGrant) -> None:
        self.contract = ready.files.session
        self.receipt = ready.receipt
        self.account: Account | None = None
        self._ready = ready
        self._series = Series(ready.settings, ready.contract.rounds, ready.most)
        self._stack = contextlib.AsyncExitStack()
        self._seen, self._entered = 0, False
        self._loop = LoopThread()

    def __repr__(self) -> str:
        study = self.contract.study
        spent = f"{self.begun} begun, epsilon {epsilon_text(self.epsilon)} of {study.epsilon:g} at delta {study.delta:g}"
        return f"{type(self).__name__}({study.name!r}, round {self.round} of {study.rounds}, {spent})"

    def _enter(self) -> None:
        """Raises :class:`InputError` the second time: these rounds run, or are over."""
        if self._entered:
            raise InputError("these rounds of a session are entered already. Use them without another with statement.")
        self._entered = True

    async def _begin(self) -> None:
        ready = self._ready
        ready.started()
        try:
            await self._stack.enter_async_context(self._series)
            if ready.charge is not None and ready.settings.start is None:
                # All were there: from here on something may leave, and the ledger knows it before.
                await asyncio.to_thread(ready.charge.bind, ready.settings.study)
        except NotStarted as error:
            # One that waits for all goes on from its store, and is charged anew then.
            ended_so = not_started(error, ready.charge)
            ready.auditor.write(Event.ENDED, {"result": False, "reason": "it did not start with this party"})
            raise ended_so from None
        except BaseException:
            ready.auditor.write(Event.ENDED, {"result": False, "reason": "it could not begin, or was interrupted"})
            await self._stack.aclose()
            raise
        self._seen = self._series.progress.current

    async def _end(self, whole: bool) -> None:
        try:
            if whole:
                self._finish()
            else:
                self._ready.auditor.write(Event.ENDED, {"result": False, "reason": "interrupted, it can be continued"})
        finally:
            await self._stack.aclose()

    @property
    def over(self) -> bool:
        """Whether no round is left for this party."""
        return self._series.over

    @property
    def begun(self) -> int:
        """Rounds that this party began, with a mean or without: each is paid for."""
        return self._series.progress.begun

    @property
    def round(self) -> int:
        """The number of the last round that this party began; 0 before the first."""
        return self._series.progress.current

    @property
    def epsilon(self) -> float:
        """What the rounds so far cost at most at the session's delta; rounded up."""
        return self._part.terms.spent_epsilon(self.begun)

    @property
    def absent(self) -> Sequence[str] | None:
        """Who was not in at the start; None of a session that waits for all."""
        started = self._series.started
        return None if started is None or not self.contract.study.starts_with_quorum else started.absent

    @property
    def _part(self) -> PartOfSession:
        return self.contract.of_those_in(self._series.started)

    def last(self, clip: float | None = None) -> RoundMean[str] | None:
        """The mean of the last round, also after a restart; None if there is none, or a round without one came after it.

        ``clip``: that of the round, if it was not the session's.
        """
        end = self._series.last
        return None if end is None else self._mean_of(end, self._bound(clip), 0)

    async def take(self, vector: ArrayLike, *, clip: float | None = None) -> RoundMean[str]:
        """Take part in the next round, and its mean.

        ``vector``: (d,), shortened to the L2 norm ``clip``; where records are protected (N, d), a row for each of this party's
        records. What is not a number counts as 0. ``clip`` must be the same at all parties, and depend on nothing but what is
        public. Raises :class:`InputError`, and nothing is spent, for another shape or if no round is left;
        :class:`ProtocolFailure` for a round without a mean here, which is paid for.
        """
        bound = self._bound(clip)
        value = self._value(vector, bound)
        # It may be large, and nobody else's.
        del vector
        before = self._seen
        try:
            end = await self._series.mean(value)
            # Others take who is busy for silent: what has to be computed is in a thread.
            return await asyncio.to_thread(self._mean_of, end, bound, max(0, end.number - before - 1))
        except ProtocolFailure as error:
            error.paid(self._paid)
            raise
        finally:
            self._seen = self._series.progress.current

    @property
    def _paid(self) -> str:
        study = self.contract.study
        on = "" if self.over else "; the same command goes on"
        cost = f"epsilon {epsilon_shown(self.epsilon)} (delta {delta_shown(study.delta)}) at most"
        return f"{self.begun} of {count_of(study.rounds, 'round')}, {cost}{on}"

    def _bound(self, clip: float | None) -> float:
        return self.contract.study.clip if clip is None else checked_clip(clip)

    def _value(self, vector: ArrayLike, bound: float) -> Admitted:
        study, plan = self.contract.study, self._part.terms.plan
        array = numbers_of(vector, "the vector is")
        if study.unit == PrivacyUnit.PARTY:
            if array.shape != (study.dimension,):
                raise InputError(
                    f"the vector has shape {array.shape}, which does not fit this session. Give ({study.dimension},)."
                )
            return plan.admit(clipped_vector(array, bound), 1.0)
        records = int(self._ready.settings.brought.weight)
        if array.shape != (records, study.dimension):
            raise InputError(
                f"the records have shape {array.shape}, which does not fit this session. Give ({records}, "
                f"{study.dimension}) of this party."
            )
        return plan.admit(clipped_rows(array, bound, plan.value_step), float(records))

    def _mean_of(self, end: RoundEnd, scale: float, missed: int) -> RoundMean[str]:
        part = self._part
        names, plan = part.names, part.terms.plan
        require_possible(plan, *opened_of(end.result, plan))
        inside = end.execution.contributors().tolist()
        if sum(inside) < part.least:
            raise ProtocolFailure(
                f"round {end.number} has no mean: it counts {sum(inside)} parties, and needs {part.least}. What it cost is in "
                f"the ledger. Begin the next round when {part.least} parties are there."
            )
        return RoundMean(
            end.number,
            _scaled(end.result.mean, scale),
            tuple(name for name, counted in zip(names, inside, strict=True) if counted),
            end.execution,
            tuple(names[party] for party in end.not_heard),
            missed,
            end.bytes_sent,
            _parties=names,
            _scale=scale,
            _terms=part.terms,
            _begun=self.begun,
        )

    def _finish(self) -> None:
        """First the store says that this party begins no other round, then the ledger gives back what is not spent."""
        if not self._series.progress.left:
            self._series.leave()
        self.account = _settle(self._ready, self._series)


def wait_for(work: Future[Result]) -> Result:
    try:
        return work.result()
    except KeyboardInterrupt:
        # The party stops as it does on the command line: what it has is in its store.
        work.cancel()
        raise


class Rounds(JoinedSession):
    """The rounds of a session, as calls that block."""

    def __enter__(self) -> Self:
        self._enter()
        try:
            wait_for(self._loop.start(self._begin()))
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._loop.start(self._end(kind is None)).result()
        finally:
            self._loop.close()

    def mean(self, vector: ArrayLike, *, clip: float | None = None) -> RoundMean[str]:
        """Take part in a round as :meth:`JoinedSession.take` does."""
        work = self.take(vector, clip=clip)
        # Where the program keeps no name for it, its memory is free once it is clipped.
        del vector
        return wait_for(self._loop.start(work))


class AsyncRounds(JoinedSession):
    """The rounds of a session, as coroutines."""

    async def __aenter__(self) -> Self:
        self._enter()
        try:
            await asyncio.wrap_future(self._loop.start(self._begin()))
        except BaseException:
            await asyncio.to_thread(self._loop.close)
            raise
        return self

    async def __aexit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await asyncio.wrap_future(self._loop.start(self._end(kind is None)))
        finally:
            await asyncio.to_thread(self._loop.close)

    async def mean(self, vector: ArrayLike, *, clip: float | None = None) -> RoundMean[str]:
        """Take part in a round as :meth:`JoinedSession.take` does."""
        work = self.take(vector, clip=clip)
        del vector
        return await asyncio.wrap_future(self._loop.start(work))


def _scaled(mean: Vector, scale: float) -> Vector:
    """Scale a vector, in place where that changes no other array: vectors are large."""
    return np.multiply(mean, scale, out=mean if mean.base is None else None)


def give_up(ready: NodeGrant) -> Account | None:
    """End this party's part for good without another round, as :class:`JoinedSession` does at its end; nothing is sent."""
    ready.started()
    series = Series(ready.settings, ready.contract.rounds, ready.most)
    series.retire()
    return _settle(ready, series)


def _settle(ready: NodeGrant, series: Series) -> Account | None:
    account = settle(ready, ready.files.session, series.started, series.progress)
    ready.files.forget_opening_keys()
    return account
