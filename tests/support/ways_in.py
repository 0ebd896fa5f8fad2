"""Every protocol by every name, with its default options, in every way in: what the seal says, and what parties then come to."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.core.site_options import SiteOptions
from quietmean.node import Identity
from quietmean.planning.automatic import AUTO
from quietmean.protocols import get_protocol, registry
from quietmean.studies.agreement.any_study import AnyStudy, any_of_tables, require_study
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.outcome.feasible import feasible, feasible_sealed, require_in_general, require_sealable
from quietmean.studies.party import Observers, PartyContext
from quietmean.studies.party.by_file import combine
from quietmean.studies.party.member import MemberFiles, open_with_others
from support.committee_study import soon
from support.meeting import Meeting, meet

PROTOCOLS = (AUTO, *(name for kind in registry().values() for name in (kind.name, *kind.TRAITS.aliases)))
WAYS = ("run", "join", "folder", "file", "session", "committee")
UNITS = ("record", "party", "person")
NAMES = ("north", "south", "east")
MEMBERS = ("m1", "m2", "m3", "m4")
DIMENSION = 3
# How many rows a party has, two of each person.
ROWS = 40
# In seconds: how often a process looks that looks all the time, and how long parties wait on a busy machine, where all come.
_POLL, _PATIENCE = 2.0, 600.0
ROUND_TIMEOUT = 30.0
_WAITS = {"round_timeout": ROUND_TIMEOUT, "start_timeout": _PATIENCE}


@dataclass(frozen=True)
class Cell:
    """One protocol's name in one way in, protecting one unit.

    ``more``: other fields of the study; ``start_in`` and ``contribute_in`` are times, in seconds from when it is written.
    """

    protocol: str
    way: str
    unit: str
    more: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.protocol}-{self.way}-{self.unit}"

    @property
    def bare(self) -> bool:
        """Without privacy, which somebody has to ask for."""
        return self.protocol != AUTO and not get_protocol(self.protocol).TRAITS.private

    @property
    def charged(self) -> bool:
        """With an epsilon, which a ledger can keep account of."""
        return not self.bare and "nats" not in dict(self.more)

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES if self.way != "committee" else (*MEMBERS, *NAMES)

    def tables(self) -> dict[str, Any]:
        """Of its file; a budget with which no noise hides all, and nothing else that a protocol would need."""
        # Three values of whole parties hide each other where no session adds up many means.
        epsilon = 30.0 if self.unit == "party" and self.way != "session" else 8.0
        general: dict[str, Any] = {
            "name": "ages",
            "epsilon": epsilon,
            "delta": 1e-6,
            "colluding": 1,
            "protocol": self.protocol,
            "unit": self.unit,
        }
        general = {name: value for name, value in {**general, **dict(self.more)}.items() if value is not None}
        committee = {"members": len(MEMBERS), "contribute_by": soon(general.pop("contribute_in", 40.0)), "grace": 0.0}
        if "start_in" in general:
            general["start_by"] = soon(general.pop("start_in"))
        if self.way == "session":
            return {"session": {**_WAITS, **general, "dimension": DIMENSION, "rounds": 2}}
        if self.way == "folder":
            first = (datetime.now(UTC) + timedelta(seconds=_PATIENCE)).isoformat()
            general |= {"transport": "folder", "deadlines": {"first": first, "interval": _PATIENCE, "poll": _POLL}}
        elif self.way == "committee":
            del general["colluding"]
            general["committee"] = committee
        else:
            general = _WAITS | general
        if self.way == "file":
            # With nobody missing there is no decoder for what is.
            general["dropouts"] = 0.34
        others = {name: general.pop(name) for name in ("statistic",) if name in general}
        return {"study": general, "column": [{"name": "age", "low": 20, "high": 90}], **others}


def cells() -> Iterator[Cell]:
    for protocol in PROTOCOLS:
        for way in WAYS:
            for unit in UNITS:
                yield Cell(protocol, way, unit)


def said(act: Callable[[], Any]) -> str | None:
    """Why it is refused; None where it is not."""
    try:
        act()
    except InputError as error:
        return str(error)
    return None


@dataclass
class Consortium:
    """The parties of a cell in one folder, with their keys and what they sealed without asking whether that goes.

    ``ports``: of those that have an address, in their order. ``charging``: whether each has a ledger, where there is an epsilon.
    ``listen``: where those listen that others dial elsewhere. ``drop``: the address of the drop that takes contributions.
    """

    cell: Cell
    folder: Path
    ports: list[int]
    charging: bool = False
    listen: dict[str, str] = field(default_factory=dict)
    drop: str | None = None

    @cached_property
    def terms(self) -> AnyStudy:
        """Raises :class:`InputError` for what no study file can say."""
        return any_of_tables(self.cell.tables(), "the study")

    @cached_property
    def meeting(self) -> Meeting:
        """Who accepted, each with its key in the folder."""
        cell, places = self.cell, dict(zip(self.cell.names, self.ports, strict=False))
        computing = MEMBERS if cell.way == "committee" else () if cell.way in ("file", "folder") else cell.names
        addresses = {name: f"127.0.0.1:{places[name]}" if name in computing and name in places else "" for name in cell.names}
        meeting = meet(self.folder, cell.names, self.terms.tables(), addresses=addresses, members=computing)
        for name, identity in meeting.identities.items():
            identity.save(self.key(name))
        return meeting

    @cached_property
    def sealed(self) -> Sealed:
        """As it is in its file, once it was made."""
        if self.path.exists():
            return Sealed.load(self.path)
        sealed = self.meeting.seal()
        self.path.write_bytes(sealed.signed.to_file())
        return sealed

    @property
    def path(self) -> Path:
        return self.folder / "ages.sealed"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def refused_before(self) -> str | None:
        """Why no seal is made: what new, plan --study and seal say; None where they all say yes."""
        if (why := said(lambda: self.terms)) is not None:
            return why
        terms, bare = self.terms, self.cell.bare
        in_general = said(lambda: require_in_general(terms, no_privacy=bare))
        if self.cell.way == "run":
            return in_general or said(lambda: feasible(terms, len(NAMES), no_privacy=bare, units=self.units))
        sealing = said(lambda: require_sealable(self.sealed, datetime.now(UTC)))
        # What nobody can do is not sealed either.
        assert in_general is None or sealing == in_general, (in_general, sealing)
        return sealing

    @property
    def units(self) -> float:
        return len(NAMES) * {"record": ROWS, "person": ROWS / 2, "party": 1.0}[self.cell.unit]

    def data(self, name: str) -> Any:
        """What a party has: two rows of each person."""
        ages = np.linspace(25 + len(name), 80, ROWS)
        frame = pd.DataFrame({"age": ages, "who": [f"p{row // 2}" for row in range(ROWS)]})
        frame["day"] = [f"2026-01-{1 + row % 2:02}" for row in range(ROWS)]
        return qm.FrameOfPersons(frame, person="who", date="day") if self.cell.unit == "person" else frame[["age"]]

    def refused_at_join(self) -> str | None:
        """What the first party is told who takes part all the same, before anything leaves its machine."""
        _ = self.sealed
        if self.cell.way in ("run", "file"):
            return said(self.come_to)
        return said(lambda: asyncio.run(asyncio.wait_for(self.one(self.cell.names[0]), _PATIENCE)))

    @property
    def one(self) -> Callable[[str], Coroutine[Any, Any, Any]]:
        by_way = {"session": self._in_session, "committee": self._member}
        return by_way.get(self.cell.way, self._join)

    def come_to(self, *, again: str = "") -> list[Any]:
        """What parties have who take part, one for each. ``again``: who is interrupted on the way and comes again.

        Raises :class:`InputError` for what is refused.
        """
        # An epsilon that protects next to nothing is warned of.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._come_to(again)

    def _come_to(self, again: str) -> list[Any]:
        if self.cell.way == "run":
            return self._run()
        _ = self.sealed
        if self.cell.way == "file":
            return self._by_file()
        one = self.one

        async def all_of_them() -> list[Any]:
            if self.cell.way == "committee":
                for name in NAMES:
                    await asyncio.to_thread(self.contribute, name)
                return list(await asyncio.gather(*map(one, MEMBERS)))
            return list(
                await asyncio.gather(*(_twice(one, name, self.store(name)) if name == again else one(name) for name in NAMES))
            )

        return asyncio.run(all_of_them())

    def store(self, name: str) -> Path:
        return self.folder / f"{name}.store"

    def ledger(self, name: str) -> Path | None:
        return self.folder / f"{name}.ledger" if self.charging and self.cell.charged else None

    def _site(self, name: str) -> dict[str, Any]:
        ledger = self.ledger(name)
        charged = {"no_ledger": True} if ledger is None else {"ledger": ledger, "new_account": name}
        return {"yes": True, "a_priori_above_target": True, **charged}

    def _node(self, name: str) -> dict[str, Any]:
        own = {"store": self.store(name), "receipt": self.folder / f"{name}.json", "listen": self.listen.get(name)}
        return {**self._site(name), **own}

    async def _join(self, name: str) -> Any:
        share = {"folder": str(self.folder / "share")} if self.cell.way == "folder" else {}
        (self.folder / "share").mkdir(exist_ok=True)
        given = {**self._node(name), **share, "no_privacy": self.cell.bare}
        return await qm.ajoin(self.path, None, self.key(name), data=self.data(name), **given)

    async def _in_session(self, name: str) -> Any:
        records = ROWS if self.cell.unit == "record" else None
        means = []
        async with qm.session(self.path, None, self.key(name), records=records, **self._node(name)) as rounds:
            while not rounds.over:
                shape = (DIMENSION,) if records is None else (records, DIMENSION)
                means.append((await rounds.mean(np.full(shape, 0.1))).mean)
        return means

    def _run(self) -> list[Any]:
        study = qm.Study._of(require_study(self.terms))
        return [study.run({name: self.data(name) for name in NAMES}, no_privacy=self.cell.bare, a_priori_above_target=True)]

    def contribution(self, name: str) -> Path:
        return self.folder / "box" / f"{name}.contribution"

    @property
    def box(self) -> Path:
        """Where members find what came."""
        return self.folder / ("box" if self.drop is None else "dropped")

    def contribute(self, name: str) -> Path:
        file = self.contribution(name)
        file.parent.mkdir(exist_ok=True)
        qm.contribute(self.path, self.key(name), data=self.data(name), out=file, drop=self.drop, **self._site(name))
        return file

    def _by_file(self) -> list[Any]:
        for name in NAMES:
            self.contribute(name)
        return [self.combined()]

    def combined(self) -> Any:
        """The result of everybody's files."""
        files = [self.contribution(name) for name in NAMES]
        return combine(self.sealed, feasible_sealed(self.sealed).plan, files)

    async def _member(self, name: str) -> Any:
        files = PartyContext.load(self.path, None, self.key(name), Identity.load, self.store(name))
        own = SiteOptions(store=self.store(name), listen=self.listen.get(name))
        member = MemberFiles(files, feasible_sealed(self.sealed).plan, own)
        return await open_with_others(member, self.box, Observers(_silent, None), None, _silent)


def _silent(told: object) -> None:
    """Nobody looks on."""


async def _twice(one: Callable[[str], Coroutine[Any, Any, Any]], name: str, store: Path) -> Any:
    """Interrupted, as by Ctrl-C, once there is something to come back to; then called again."""
    first = asyncio.create_task(one(name))
    while not store.exists() and not first.done():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    if first.done():
        return await first
    first.cancel()
    gone: Awaitable[Any] = asyncio.gather(first, return_exceptions=True)
    await gone
    return await one(name)
