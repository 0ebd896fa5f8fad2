"""One party's program is given what no admission lets in: what the others are shown, under every protocol, each way.

The table of the page about liars says what happens; here real parties live it: processes of this machine, parties that join over
TLS, files that somebody adds up, and a session's round. Where a way cannot carry a protocol, it says so before anything is sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError, QuietmeanError
from quietmean.planning import Plan
from quietmean.protocols import get_protocol
from quietmean.sessions.round_mean import RoundMean
from quietmean.studies.outcome import local
from quietmean.studies.outcome.feasible import require_by_file
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.party.by_file import Combined, SharingContributor, combine
from support.liars import HEADS, given_a_lie
from support.meeting import meet
from support.processes import as_processes
from support.rosters import on_this_machine, write_roster
from support.sessions import endings
from support.site_policy import write_policy

PAGE = Path(__file__).parents[2] / "docs" / "trust" / "liars.md"
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

Plan.machine = given_a_lie({place}, {head!r}, {far!r})
sys.exit(child.main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def page() -> dict[tuple[str, str], str]:
    """What the page says, by protocol and lie."""
    lines = PAGE.read_text().split("\n\n")[3].splitlines()
    heads = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {(name.strip("`"), head): said for name, *cells in rows for head, said in zip(heads, cells, strict=True)}


SAID = page()
CASES = [pytest.param(*case, id="-".join(case)) for case in sorted(SAID)]
BY_FILE = [case for case in CASES if case.values[0] in ("cordp-dme", "local-dp")]
# Gossip waits in each of its rounds for whom nobody listens to.
OPTIONS: dict[str, dict[str, Any]] = {"gossip": {"rounds": 4}}
PRIVATE = [case for case in CASES if get_protocol(str(case.values[0])).TRAITS.private]
BARE = [case for case in CASES if case not in PRIVATE]


def study(name: str) -> tuple[qm.Study, bool]:
    """Of ages between 20 and 90; with dropouts where the protocol plans for them. And whether it has no privacy at all."""
    bare = not get_protocol(name).TRAITS.private
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


def far(name: str, head: str) -> float:
    """How much too large a lie is: where it is a release that counts, as much as these plans' numbers have room for."""
    return 2.0**18 if SAID[name, head] == "left out, named" else 2.0**20


def expected(name: str, head: str) -> set[str]:
    """What the page says. Modulo what the plan chose, a number that is too large may be one within the bounds or not; between
    processes a message of consensus has no room for it, and no connection takes what is no number."""
    said = SAID[name, head]
    if head == "no number":
        return {said, "cannot be sent"}
    if name == "consensus":
        return {said, "cannot be sent"}
    either = "no result" if name in MODULAR else said
    return {said, either} if said == "within the bound" else {said}


def may_be_missing(name: str) -> set[str]:
    """The liar, and in consensus its neighbours on a ring: who misses the first message over an edge tells nothing."""
    places = [PLACE, PLACE - 1, PLACE + 1] if name == "consensus" else [PLACE]
    return {called for place in places for called in (PARTIES[place], f"party {place}")}


def require_as_said(name: str, said: set[str], ended: Any) -> None:
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
    assert set(ended.missing) <= may_be_missing(name)
    answer = ended["mean(age)"]
    most = 0.0 if ended.missing else ended.influence.most("mean(age)")
    if name == "consensus" and len(ended.missing) == 3 and np.isinf(answer.standard_error[0]):
        # Noise on edges that did not open is larger than all values: no mean is told.
        assert np.isnan(answer.value[0])
        return
    assert abs(float(answer.value[0]) - MIDDLE) <= most + 8 * float(answer.standard_error[0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), CASES)
@pytest.mark.filterwarnings("ignore")
def test_by_join(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Plan, "machine", given_a_lie(PLACE, head, far(name, head)))
    write_roster(tmp_path, on_this_machine(PARTIES, free_ports(len(PARTIES))))
    write_policy(largest_epsilon=25.0)
    asked, bare = study(name)

    async def part(party: str) -> Any:
        agreed = qm.contract(asked, "roster.toml", f"{party}.key", no_privacy=bare)
        return await qm.ajoin(
            asked, "roster.toml", f"{party}.key", data=frame(party), accept=agreed, no_privacy=bare, no_ledger=True,
        )  # fmt: skip

    for party, ended in zip(PARTIES, endings(part, PARTIES), strict=True):
        if party != LIAR:
            require_as_said(name, expected(name, head), ended)
            require_told(expected(name, head), ended, Path(f"ages-{party}.receipt.json"))


def require_told(said: set[str], ended: Any, file: Path) -> None:
    """Who released what cannot be is named, with a digest; of a sum that cannot be it is said why there is no result.

    Where nothing can be done without the party that stops, nothing has been released that a receipt could be about.
    """
    held_back = "it sent nothing of its value" in str(ended)
    if isinstance(ended, BaseException) and (held_back or said == {"cannot be sent"}):
        assert not file.exists()
        assert held_back or "no result: secret-sharing needs every message of all parties, and one was away" in str(ended)
        return
    receipt = json.loads(file.read_text())
    impossible = receipt["origin"].get("impossible_releases", [])
    if isinstance(ended, BaseException):
        assert "result" not in receipt
        if said == {"no result"}:
            assert "a result that cannot be" in str(ended)
            assert receipt["no_result"]["reason"] in str(ended)
    elif ended.missing and said == {"left out, named"}:
        ((place, digest),) = impossible
        assert place == PLACE
        assert receipt["left_out"] == [PLACE]
        assert any(f"what {LIAR} released (digest {digest[:16]}) cannot be" in note for note in ended.notes)
    else:
        assert impossible == []


def lying_program(name: str, head: str) -> tuple[str, str]:
    """The process of one party is given a lie."""
    return ("-c", PROGRAM.format(tests=str(Path(__file__).parents[1]), place=PLACE, head=head, far=far(name, head)))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), PRIVATE)
@pytest.mark.filterwarnings("ignore")
def test_by_run(name: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_processes(monkeypatch, program=lying_program(name, head))
    monkeypatch.setattr(local, "choose_kills", lambda plan, dropouts: [])
    asked, _ = study(name)
    try:
        ended: Any = asked.run([frame(party) for party in PARTIES])
    except QuietmeanError as error:
        ended = error
    require_as_said(name, expected(name, head), ended)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), BARE)
def test_by_run_without_privacy(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, which alone runs a protocol that protects nothing."""
    as_processes(monkeypatch, program=lying_program(name, head))
    monkeypatch.setattr(local, "choose_kills", lambda plan, dropouts: [])
    table = pd.concat([frame(party).assign(site=party) for party in PARTIES])
    table.to_csv(tmp_path / "ages.csv", index=False)
    given = ["--data", str(tmp_path / "ages.csv"), "--party-column", "site", "mean(age in 20..90)"]
    given += [f"--{option}={value}" for option, value in OPTIONS.get(name, {}).items()]
    given += ["--protocol", name, "--no-privacy", "--epsilon", "8", "--delta", "1e-6", "--out", str(tmp_path / "out"), "--json"]
    said, code = expected(name, head), 0
    try:
        main(["run", *given])
    except SystemExit as ended:
        code = int(ended.code or 0)
    if code:
        assert code == 3
        assert said & {"no result", "cannot be sent"}
        if said == {"no result"}:
            assert "a result that cannot be" in capsys.readouterr().err
        return
    document = json.loads(capsys.readouterr().out)
    left = len(PARTIES) - document["parties_counted"]
    assert said & ({"cannot be sent"} if left else {"within the bound"})
    assert left <= 1
    moved, stated = abs(document["estimate"] - MIDDLE), StudyInfluence.from_json(document["certificate"]["influence"])
    assert stated is not None
    # Nothing of a liar whose numbers nobody takes; everybody else's are the same.
    assert moved <= (1e-9 if left else stated.most("mean(age)") or 0.0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "head"), BY_FILE)
def test_by_file(name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the files leaves out that of the liar, by party and reason; and it says no other weight than a study allows."""
    ended = combined(name, head, tmp_path, monkeypatch)
    answer, bound = ended.outcome.answers[0].estimates, ended.outcome.influence
    assert bound is not None
    if head == "twice the records":
        # Files are all that is known of a party: so many records, of which half are at a bound, can be.
        assert ended.left_out == ()
        assert LIAR in ended.digests
        most = bound.most("mean(age)")
        assert most is not None
    else:
        assert ended.missing == (LIAR,)
        assert set(ended.digests) == set(PARTIES) - {LIAR}
        assert expected(name, head) & {"left out, named", "cannot be sent"}
        most = 0.0
        if expected(name, head) == {"left out, named"}:
            ((path, reason),) = ended.left_out
            assert Path(path).stem == LIAR
            assert f"{LIAR} " in reason
            assert "is not a whole number of at least 0" in reason if head == "half a record less" else "cannot be" in reason
    assert abs(float(answer.value[0]) - MIDDLE) <= most + 8 * float(answer.standard_error[0])


def test_by_file_a_weight_beyond_what_the_study_allows_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = combined("local-dp", "twice the records", tmp_path, monkeypatch, records_per_party=[40, 50])
    ((_, reason),) = ended.left_out
    assert reason == f"{LIAR} says that it has 84 records, allowed in this study are 40 to 50 (records_per_party)"


def combined(name: str, head: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Combined:
    """What is made of everybody's files, or of those that a party could write."""
    asked = {"name": "ages", "colluding": 1, "dropouts": 0.2, "protocol": name, "epsilon": 8.0, "delta": 1e-6, **more}
    meeting = meet(folder, PARTIES, {"study": asked, "column": [{"name": "age", "low": 20, "high": 90}]})
    sealed = meeting.seal()
    plan = sealed.study.plan(len(PARTIES))
    place = [entry.name for entry in sealed.entries].index(LIAR)
    monkeypatch.setattr(Plan, "machine", given_a_lie(place, head, far(name, head)))
    paths = []
    for party in PARTIES:
        encoded = sealed.study.workload.encode(frame(party).to_numpy(), step=plan.value_step)
        contributor = SharingContributor(sealed, plan, meeting.identities[party], meeting.keys[party], folder / party)
        try:
            signed = contributor.contribute(encoded)
        except (QuietmeanError, ArithmeticError, ValueError):
            # Its own program stops.
            assert party == LIAR
            continue
        paths.append(folder / f"{party}.contribution")
        paths[-1].write_bytes(signed.to_file())
    return combine(sealed, plan, paths)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted({name for name, _ in SAID} - {str(case.values[0]) for case in BY_FILE}))
def test_what_no_file_carries_is_refused_before_there_is_one(name: str) -> None:
    asked, bare = study(name)
    with pytest.raises(InputError, match=f"by file every party sends one message, and {name} with these options needs more"):
        require_by_file(asked.terms.choice(len(PARTIES), no_privacy=bare).plan)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head"), PRIVATE)
@pytest.mark.filterwarnings("ignore")
def test_by_session(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    """A round's mean: of parties of weight one each, whose values are in the unit box."""
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(PARTIES, free_ports(len(PARTIES))))
    write_policy(largest_epsilon=25.0, unattended=True)
    monkeypatch.setattr(Plan, "machine", given_a_lie(PLACE, head, far(name, head)))

    async def part(own: str) -> Any:
        async with qm.session(session_terms(name), "roster.toml", f"{own}.key", no_ledger=True, yes=True) as rounds:
            return await rounds.mean(np.full(5, 0.3))

    ends = dict(zip(PARTIES, endings(part, PARTIES), strict=True))
    # A weight beyond the plan's: its own machine sends nothing.
    refused = {"cannot be sent"} if isinstance(ends.pop(LIAR), InputError) else set()
    for ended in ends.values():
        said = expected(name, head) | refused
        if head in ("twice the records", "half a record less"):
            # A vector counts nothing that its weight would have to fit: it is another one, which may lie in the region.
            said |= {"within the bound"}
        if isinstance(ended, RoundMean):
            counts = LIAR in ended.counted
            assert said & ({"within the bound"} if counts else {"left out, named", "cannot be sent"}), ended.counted
            # A release is missing where one can have been made; who stopped before it is not counted, and that is all.
            assert counts or LIAR in ended.not_heard or "cannot be sent" in said
            # Everybody's is 0.3; one of six moves the mean by a sixth of the width at most, where a lie is a possible number.
            most = 2 / len(PARTIES) if counts else 0.0
            assert np.abs(ended.mean - 0.3).max() <= most + 8 * ended.standard_error
        else:
            require_as_said(name, said, ended)


def session_terms(name: str) -> dict[str, Any]:
    dropouts = 0.0 if name == "consensus" else 0.2
    terms = {"name": "rounds", "dimension": 5, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1, "dropouts": dropouts}
    return terms | {"protocol": name, "round_timeout": 2.0, "options": OPTIONS.get(name, {})}


@pytest.mark.parametrize("name", sorted({str(case.values[0]) for case in BARE}))
def test_a_session_has_no_rounds_without_privacy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(PARTIES, list(range(7001, 7007))))
    write_policy(largest_epsilon=25.0, unattended=True)
    terms = session_terms(name) | {"dropouts": 0.0, "start_timeout": 1.0}
    with (
        pytest.raises(InputError, match=f"{name} has no differential privacy"),
        qm.session(terms, "roster.toml", f"{LIAR}.key", no_ledger=True, yes=True),
    ):
        pass


def test_the_page_has_every_lie() -> None:
    assert {head for _, head in SAID} == set(HEADS)
