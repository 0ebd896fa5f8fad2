"""A session between machines from Python: ``with`` blocks, ``async with`` does not; both are one party's part."""

from __future__ import annotations

import asyncio
import runpy
import sys
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from quietmean.api import rooms
from quietmean.api.joining import JoinKeywords, identity_at, silent_person
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.site_options import SiteOptions, path_of

Part = TypeVar("Part")
Kind = type[BaseException] | None
# The rounds of the session in which a program runs.
_JOINED: list[rooms.joined.Rounds] = []


class RunningSession:
    """A session that runs for this party, in a thread of its own, for as long as a ``with`` or an ``async with`` statement."""

    def __init__(self) -> None:
        self._rounds: rooms.joined.Rounds | None = None
        self._async_rounds: rooms.joined.AsyncRounds | None = None

    @property
    @abstractmethod
    def _ready(self) -> rooms.party.NodeGrant:
        """The yes and the charge, once."""

    def _enter(self) -> rooms.party.NodeGrant:
        if self._rounds is not None or self._async_rounds is not None:
            raise InputError("this session is running already. Call qm.session again to continue it.")
        return self._ready

    def __enter__(self) -> rooms.joined.Rounds:
        self._rounds = rooms.joined.Rounds(self._enter()).__enter__()
        return self._rounds

    def __exit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rounds is not None:
            self._rounds.__exit__(kind, error, trace)

    async def __aenter__(self) -> rooms.joined.AsyncRounds:
        rounds = rooms.joined.AsyncRounds(await asyncio.to_thread(self._enter))
        self._async_rounds = await rounds.__aenter__()
        return rounds

    async def __aexit__(self, kind: Kind, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._async_rounds is not None:
            await self._async_rounds.__aexit__(kind, error, trace)


class PartOf(RunningSession):
    """The part of a party that has said yes and paid: ``ready``."""

    def __init__(self, ready: rooms.party.NodeGrant) -> None:
        super().__init__()
        self._prepared = ready

    @property
    def _ready(self) -> rooms.party.NodeGrant:
        return self._prepared

    def run(self, program: Path) -> rooms.joined.Rounds:
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
def joined() -> rooms.joined.Rounds:
    """The rounds of the session that ``quietmean join SESSION --program FILE`` runs this program in.

    Raises :class:`InputError` where it runs by itself.
    """
    if not _JOINED:
        raise InputError(
            "this program is in no session. Run it by quietmean join SESSION --program FILE, or take part with qm.session(...)."
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
            files = rooms.party.PartyContext.load(
                Path(session), path_of(roster), Path(key), unlock, store_at, rooms.any_study.require_session
            )
        elif roster is None:
            raise InputError("this session does not say who takes part. Give the roster with names, addresses and keys.")
        else:
            files = rooms.party.PartyContext.of(rooms.session_study.SessionStudy.parse(session), Path(roster), Path(key), unlock)
        self._files, self.contract = files, files.session
        self._options = SiteOptions.of(site, store_at, receipt)
        self._most, self._records, self._report = most, records, site.get("report")

    @cached_property
    @python_call
    def _ready(self) -> rooms.party.NodeGrant:
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
