"""A session between machines from Python: ``with`` blocks, ``async with`` does not; both are one party's part."""

from __future__ import annotations

import asyncio
import runpy
import sys
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, TypeVar, Unpack

from numpy.typing import ArrayLike

from quietmean.api import rooms
from quietmean.api.joining import JoinKeywords, identity_at, silent_person
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.readable import epsilon_text
from quietmean.core.site_options import SiteOptions, path_of

Result = TypeVar("Result")
Kind = type[BaseException] | None
# The rounds of the session in which a program runs.
_JOINED: list[Rounds] = []


class _Loop:
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


class _Rounds:
    """What both faces have."""

    def __init__(self, joined: rooms.joined.JoinedSession, loop: _Loop) -> None:
        self._joined = joined
        self._loop = loop

    def __repr__(self) -> str:
        study = self.contract.study
        spent = f"{self.begun} begun, epsilon {epsilon_text(self.epsilon)} of {study.epsilon:g} at delta {study.delta:g}"
        return f"{type(self).__name__}({study.name!r}, round {self.round} of {study.rounds}, {spent})"

    @property
    def contract(self) -> rooms.agreed.SessionContract:
        return self._joined.contract

    @property
    def over(self) -> bool:
        """Whether no round is left for this party."""
        return self._joined.over

    @property
    def round(self) -> int:
        """The number of the last round that this party began; 0 before the first."""
        return self._joined.round

    @property
    def begun(self) -> int:
        """How many rounds this party began, with a mean or without: each is paid for."""
        return self._joined.begun

    @property
    def epsilon(self) -> float:
        """What they cost at most at the session's delta, whatever happened in them; rounded up."""
        return self._joined.spent_epsilon

    @property
    def absent(self) -> Sequence[str] | None:
        """Who was not in at the start; None of a session that waits for all."""
        return self._joined.absent

    @property
    def receipt(self) -> Path:
        """The file with the certificate of all rounds, once the session has ended here."""
        return self._joined.receipt

    @property
    def account(self) -> rooms.ledger.Account | None:
        """The ledger's account, once the session has ended here."""
        return self._joined.account

    def last(self, clip: float | None = None) -> rooms.round_mean.RoundMean[str] | None:
        """The mean of the last round, also of one before a restart; None if there is none. ``clip``: that of the round."""
        return self._joined.last(clip)


class Rounds(_Rounds):
    """The rounds of a session, as calls that block."""

    def mean(self, vector: ArrayLike, *, clip: float | None = None) -> rooms.round_mean.RoundMean[str]:
        """As :meth:`quietmean.sessions.joined.JoinedSession.mean`."""
        work = self._joined.mean(vector, clip=clip)
        # Where the program keeps no name for it, its memory is free once it is clipped.
        del vector
        return _wait(self._loop.start(work))


class AsyncRounds(_Rounds):
    """The rounds of a session, as coroutines."""

    async def mean(self, vector: ArrayLike, *, clip: float | None = None) -> rooms.round_mean.RoundMean[str]:
        """As :meth:`quietmean.sessions.joined.JoinedSession.mean`."""
        work = self._joined.mean(vector, clip=clip)
        del vector
        return await asyncio.wrap_future(self._loop.start(work))


def _wait(work: Future[Result]) -> Result:
    try:
        return work.result()
    except KeyboardInterrupt:
        # The party stops as it does on the command line: what it has is in its store.
        work.cancel()
        raise


class RunningSession:
    """A session that runs for this party, in a thread of its own, for as long as a ``with`` or an ``async with`` statement."""

    def __init__(self) -> None:
        self._running: tuple[_Loop, rooms.joined.JoinedSession] | None = None

    @property
    @abstractmethod
    def _ready(self) -> rooms.joined.PreparedSession:
        """The yes and the charge, once."""

    def _enter(self) -> tuple[_Loop, rooms.joined.JoinedSession]:
        if self._running is not None:
            raise InputError("this session is running already: call qm.session again to continue it")
        ready = self._ready
        loop = _Loop()
        return loop, rooms.joined.JoinedSession(ready)

    def __enter__(self) -> Rounds:
        loop, joined = self._enter()
        try:
            _wait(loop.start(joined.__aenter__()))
        except BaseException:
            loop.close()
            raise
        self._running = loop, joined
        return Rounds(joined, loop)

    def __exit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._running is not None:
            loop, joined = self._running
            try:
                loop.start(joined.__aexit__(kind, error, trace)).result()
            finally:
                loop.close()

    async def __aenter__(self) -> AsyncRounds:
        loop, joined = await asyncio.to_thread(self._enter)
        try:
            await asyncio.wrap_future(loop.start(joined.__aenter__()))
        except BaseException:
            await asyncio.to_thread(loop.close)
            raise
        self._running = loop, joined
        return AsyncRounds(joined, loop)

    async def __aexit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._running is not None:
            loop, joined = self._running
            try:
                await asyncio.wrap_future(loop.start(joined.__aexit__(kind, error, trace)))
            finally:
                await asyncio.to_thread(loop.close)


class PartOf(RunningSession):
    """The part of a party that has said yes and paid: ``ready``."""

    def __init__(self, ready: rooms.joined.PreparedSession) -> None:
        super().__init__()
        self._prepared = ready

    @property
    def _ready(self) -> rooms.joined.PreparedSession:
        return self._prepared

    def run(self, program: Path) -> Rounds:
        """Run a program as Python would, in which :func:`joined` has the rounds. Its normal end is the end of this party's part.

        Raises what it raises; after that the part can be continued.
        """
        before = sys.argv[:], sys.path[:]
        with self as rounds:
            sys.argv, sys.path = [str(program)], [str(program.absolute().parent), *sys.path]
            _JOINED.append(rounds)
            try:
                runpy.run_path(str(program), run_name="__main__")
            except SystemExit as error:
                # As a program that has done its work ends, too.
                if error.code not in (None, 0):
                    raise
            finally:
                _JOINED.remove(rounds)
                sys.argv, sys.path = before
        return rounds


@python_call
def joined() -> Rounds:
    """The rounds of the session that ``quietmean join SESSION --program FILE`` runs this program in.

    Raises :class:`InputError` where it runs by itself.
    """
    if not _JOINED:
        raise InputError(
            "this program is in no session: run it by quietmean join SESSION --program FILE, or take part with qm.session(...)"
        )
    return _JOINED[-1]


class session(RunningSession):  # noqa: N801 - it is called, like qm.join
    """One party's part in a session between machines: many means of vectors under one agreement and one budget.

    To be used in a ``with`` statement, whose ``mean`` blocks, or an ``async with`` statement, whose ``mean`` is awaited::

        with qm.session("session.toml", "roster.toml", "north.key", account="wards") as rounds:
            while not rounds.over:
                update = rounds.mean(train(update))

    ``session``: a sealed session, or together with a ``roster`` a session file or the fields of its table [session]. ``accept``:
    the digest of its contract, which ``.contract`` shows before anything is sent. ``compared``: with whom the words of a sealed
    session were compared. ``most``: take part in so many rounds, and pay for no more. ``records``: how many
    this party has, which is public, where records are protected. The other options are those of :func:`quietmean.join`: policy,
    charge and store work alike. All rounds are charged before the first; the normal end of the statement is the end of this
    party's part for good, gives back what was reserved for rounds that it never began, and writes the ``receipt``. After Ctrl-C,
    a crash or another exception the same call continues; rounds that the others had in the meantime are missed. Of a session
    whose messages are files in a ``folder``, ``once`` ends with :class:`NotYet` when all is done that can be done now. Raises
    :class:`InputError` before anything is sent.
    """

    @python_call
    def __init__(
        self,
        session: str | Path | Mapping[str, Any],
        roster: str | Path | None = None,
        key: str | Path = "quietmean.key",
        *,
        most: int | None = None,
        records: int | None = None,
        store: str | Path | None = None,
        receipt: str | Path | None = None,
        **site: Unpack[JoinKeywords],
    ) -> None:
        super().__init__()

        def unlock(path: Path) -> rooms.node.Identity:
            return identity_at(path, site.get("passphrase"))

        store_at = path_of(store)
        if not isinstance(session, Mapping):
            files = rooms.files.SessionFiles.load(Path(session), path_of(roster), Path(key), unlock, store_at)
        elif roster is None:
            raise InputError("this session does not say who takes part: give the roster with names, addresses and keys")
        else:
            files = rooms.files.SessionFiles.of(rooms.session_study.SessionStudy.parse(session), Path(roster), Path(key), unlock)
        self._files, self.contract = files, files.contract
        self._options = SiteOptions.of(site, store_at, receipt)
        self._most, self._records, self._report = most, records, site.get("report")

    @cached_property
    def _ready(self) -> rooms.joined.PreparedSession:
        preparation = rooms.joined.SessionPreparation(self._files, self._options, silent_person(self._report))
        preparation.agree()
        return preparation.prepare(self._most, self._records)

    @property
    def store(self) -> Path:
        """Where this party keeps its state."""
        return self._files.store(self._options.store)

    def give_up(self) -> rooms.ledger.Account | None:
        """End this party's part for good without another round; nothing is sent.

        What was reserved for rounds that it never began is given back, and the receipt is written: for a session that never
        started, or whose others are gone. Returns the ledger's account. Raises :class:`InputError` if another process of this
        party runs.
        """
        return rooms.joined.give_up(self._ready)
