"""One party's program is given what no admission lets in: what the others are shown, under every protocol, each way.

The table of the page about liars says what happens; here real parties live it: processes of this machine, parties that join over
TLS, and a session's round. Files of single releases are in ``test_liars``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import quietmean as qm
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.node.local import run_local
from quietmean.planning import Plan
from quietmean.protocols import get_protocol
from quietmean.sessions.round_mean import RoundMean
from quietmean.studies.outcome import local
from support.liars import HEADS, given_a_lie
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy

PAGE = Path(__file__).parents[2] / "docs" / "liars.md"
PARTIES = ("north", "south", "east", "west", "hill", "shore")
LIAR = "east"
PLACE = PARTIES.index(LIAR)
MODULAR = {"secagg", "secagg-plus", "packed-sharing"}
MIDDLE, RECORDS = 55.0, 40
# A process of a party as always; that of the liar is given a lie.
PROGRAM = """
import sys

sys.path.insert(0, {tests!r})
from pathlib import Path
from quietmean.node.local import child
from quietmean.planning import Plan
from support.liars import given_a_lie

Plan.machine = given_a_lie({place}, {head!r})
sys.exit(child.main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def page() -> dict[tuple[str, str], str]:
    """What the page says, by protocol and lie."""
    lines = PAGE.read_text().split("\n\n")[2].splitlines()
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {(name.strip("`"), head): said for name, *cells in rows for head, said in zip(heads, cells, strict=True)}


SAID = page()
CASES = [pytest.param(*case, id="-".join(case)) for case in sorted(SAID)]
# No site without a policy of its own joins consensus, of which nothing is promised beforehand.
JOINED = [case for case in CASES if case.values[0] != "consensus"]
# Gossip waits in each of its rounds for whom nobody listens to.
OPTIONS: dict[str, dict[str, Any]] = {"gossip": {"rounds": 4}}
PRIVATE = [case for case in CASES if get_protocol(str(case.values[0])).private]


def study(name: str) -> tuple[qm.Study, bool]:
    """Of ages between 20 and 90; with dropouts where the protocol plans for them. And whether it has no privacy at all."""
    bare = not get_protocol(name).private
    for dropouts in (0.2, 0.0):
        asked = qm.Study(
            {"age": (20, 90)}, ["mean(age)"], epsilon=8.0, delta=1e-6, name="ages", colluding=1, dropouts=dropouts,
            protocol=name, options=OPTIONS.get(name, {}), accept_wide=True, round_timeout=2.0,
        )  # fmt: skip
        try:
            asked.terms.choice(len(PARTIES), no_privacy=bare)
        except InputError as error:
            refused = error
        else:
            return asked, bare
    pytest.skip(str(refused))


def frame(party: str) -> pd.DataFrame:
    return pd.DataFrame({"age": np.full(RECORDS + PARTIES.index(party), MIDDLE)})


def expected(name: str, head: str) -> set[str]:
    """What the page says. Modulo what the plan chose, a number that is too large may be one within the bounds or not; between
    processes a message of consensus has no room for it, and no connection takes what is no number."""
    said = SAID[name, head]
    if head == "no number":
        return {said, "cannot be sent"}
    either = "no result" if name in MODULAR else "cannot be sent" if name == "consensus" else said
    return {said, either} if said == "within the bound" else {said}


def require_as_said(said: set[str], ended: Any) -> None:
    """What an honest party is shown is what the page says; and no estimate is further off than is stated."""
    if isinstance(ended, BaseException):
        assert isinstance(ended, QuietmeanError), repr(ended)
        assert ended.exit_code == 3, repr(ended)
        assert said & {"no result", "cannot be sent"}, repr(ended)
        return
    assert said != {"no result"}, ended
    # Nothing of the liar is in a result that is not within the bound, which says so, in numbers of parties and records as well.
    assert said & ({"left out, named", "cannot be sent"} if ended.missing else {"within the bound"}), ended.missing
    assert ended.outcome.parties_counted == len(PARTIES) - len(ended.missing)
    assert set(ended.missing) <= {LIAR, f"party {PLACE}"}
    answer = ended["mean(age)"]
    most = 0.0 if ended.missing else ended.influence.most("mean(age)")
    assert abs(float(answer.value[0]) - MIDDLE) <= most + 8 * float(answer.standard_error[0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), JOINED)
@pytest.mark.filterwarnings("ignore")
def test_by_join(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(Plan, "machine", given_a_lie(PLACE, head))
    write_roster(tmp_path, on_this_machine(PARTIES, free_ports(len(PARTIES))))
    asked, bare = study(name)

    async def part(party: str) -> Any:
        agreed = qm.contract(asked, "roster.toml", f"{party}.key", no_privacy=bare)
        return await qm.ajoin(
            asked, "roster.toml", f"{party}.key", data=frame(party), accept=agreed, no_privacy=bare, no_ledger=True
        )

    async def all_parts() -> list[Any]:
        return await asyncio.gather(*map(part, PARTIES), return_exceptions=True)

    for party, ended in zip(PARTIES, asyncio.run(all_parts()), strict=True):
        if party != LIAR:
            require_as_said(expected(name, head), ended)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), PRIVATE)
@pytest.mark.filterwarnings("ignore")
def test_by_run(name: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ("-c", PROGRAM.format(tests=str(Path(__file__).parents[1]), place=PLACE, head=head))

    def with_a_liar(*given: Any, **more: Any) -> Any:
        return run_local(*given, program=program, **more)

    monkeypatch.setattr(local, "run_local", with_a_liar)
    monkeypatch.setattr(local, "choose_kills", lambda plan, dropouts: [])
    asked, _ = study(name)
    try:
        ended: Any = asked.run([frame(party) for party in PARTIES], a_priori_above_target=name == "consensus")
    except QuietmeanError as error:
        ended = error
    require_as_said(expected(name, head), ended)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), [case for case in JOINED if case in PRIVATE])
@pytest.mark.filterwarnings("ignore")
def test_by_session(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    """A round's mean: of parties of weight one each, whose values are in the unit box."""
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(PARTIES, free_ports(len(PARTIES))))
    write_policy(largest_epsilon=25.0, unattended=True)
    monkeypatch.setattr(Plan, "machine", given_a_lie(PLACE, head))
    terms = {"name": "rounds", "dimension": 5, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1, "dropouts": 0.2}
    terms |= {"protocol": name, "round_timeout": 2.0}

    async def part(own: str) -> Any:
        async with qm.session(terms, "roster.toml", f"{own}.key", no_ledger=True, yes=True) as rounds:
            return await rounds.mean(np.full(5, 0.3))

    async def all_parts() -> list[Any]:
        return await asyncio.gather(*map(part, PARTIES), return_exceptions=True)

    for party, ended in zip(PARTIES, asyncio.run(all_parts()), strict=True):
        if party == LIAR:
            continue
        said = expected(name, head)
        if head in ("twice the records", "half a record less"):
            # A vector counts nothing that its weight would have to fit: it is another one, which may lie in the region.
            said |= {"within the bound"}
        if isinstance(ended, RoundMean):
            counts = LIAR in ended.counted
            assert said & ({"within the bound"} if counts else {"left out, named", "cannot be sent"}), ended.counted
            # Everybody's is 0.3; one of six moves the mean by a sixth of the width at most, where a lie is a possible number.
            most = 2 / len(PARTIES) if counts else 0.0
            assert np.abs(ended.mean - 0.3).max() <= most + 8 * ended.standard_error
        else:
            require_as_said(said, ended)


def test_the_page_has_every_lie() -> None:
    assert {head for _, head in SAID} == set(HEADS)
