"""One party's program lies about what it releases: nobody honest is shown an estimate that no honest parties could have made.

Where the lie does not even reach the others, as with what is no number, their result is without that party.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import quietmean as qm
from quietmean.api.result import StudyResult
from quietmean.core.errors import ProtocolFailure, QuietmeanError
from quietmean.planning import Plan
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.influence import ImpossibleResult
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.execution import Execution
from quietmean.statistics import Encoded
from quietmean.studies.outcome import local
from quietmean.studies.party import PartyContext
from quietmean.studies.party.by_file import SharingContributor, combine
from support.json_documents import faults
from support.liars import LIES, lying, telling_apart
from support.meeting import meet
from support.processes import as_processes
from support.rosters import on_this_machine, write_roster
from support.sessions import endings, entry_of
from support.site_policy import write_policy

NAMES = ("north", "south", "east")
AGES = (30.0, 40.0, 50.0)
QUICK = ("too large", "half a record")
# No party takes these from another.
UNSENDABLE = ("no number", "1e300")
CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LIES]
# A process of a party as always; that of party 2 lies.
LIES_ITSELF = """
import sys
from pathlib import Path
from quietmean.node.local import child
from quietmean.planning import Plan
from support.liars import LIES, lying, telling_apart

{lie}
sys.exit(child.main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def study(dropouts: float = 0.34, protocol: str = "cordp-dme", **more: Any) -> qm.Study:
    return qm.Study(
        {"age": (0, 100)},
        ["mean(age)"],
        epsilon=8.0,
        delta=1e-6,
        name="ages",
        colluding=1,
        dropouts=dropouts,
        protocol=protocol,
        **more,
    )


def frame(age: float) -> pd.DataFrame:
    return pd.DataFrame({"age": [age] * 500})


def require_honest(value: float, counted: list[str]) -> None:
    assert "east" not in counted
    assert abs(value - np.mean(AGES[:2])) < 15


def all_join(
    asked: qm.Study, folder: Path, monkeypatch: pytest.MonkeyPatch, ports: list[int]
) -> list[StudyResult | BaseException]:
    """How each party's part ended, in the order of the names."""
    monkeypatch.chdir(folder)
    write_roster(folder, on_this_machine(NAMES, ports))

    async def one(place: int) -> StudyResult:
        own = NAMES[place]
        agreed = qm.contract(asked, "roster.toml", f"{own}.key")
        return await qm.ajoin(asked, "roster.toml", f"{own}.key", data=frame(AGES[place]), accept=agreed, new_account=own)

    return endings(one, range(3))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_by_join(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    """What east releases is seen alone: it is left out, named, and counts as seen."""
    monkeypatch.setattr(Plan, "machine", lying(2, LIES[name]))
    for party, ended in zip(NAMES[:2], all_join(study(), tmp_path, monkeypatch, free_ports(3))[:2], strict=True):
        assert isinstance(ended, StudyResult), repr(ended)
        require_honest(float(ended["mean(age)"].value[0]), [one for one in NAMES if one not in ended.missing])
        if name in UNSENDABLE:
            continue
        receipt = json.loads(Path(f"ages-{party}.receipt.json").read_text())
        assert faults("receipt", receipt) == []
        ((place, digest),) = receipt["origin"]["impossible_releases"]
        assert (place, receipt["left_out"], receipt["origin"]["equivocating"]) == (2, [2], [])
        assert any(f"east released an impossible sum (digest {digest[:16]})" in note for note in ended.notes)
        # It is known to everybody, whether it is used or not: what the result cost is the same.
        assert Execution.from_json({**receipt, "left_out": []}).privacy(1e-6).coalitions(1).max_epsilon == ended.epsilon
        # The noise that the others share with east is in their sum.
        protocol: Any = ended.execution.protocol
        noise = 2 * protocol.sigma_own**2 + 2 * protocol.sigma_pair**2
        assert stated_variance(ended.execution) == pytest.approx(noise / 1000**2)
        assert entry_of(party).charged.mu > 0


@pytest.mark.filterwarnings("ignore")
def test_who_tells_others_something_else_is_named_by_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    """East releases to north what cannot be, and to south what can: each decides for itself, and both learn it."""
    monkeypatch.setattr(Plan, "dissemination_machine", telling_apart(2, 0))
    north, south, _ = all_join(study(), tmp_path, monkeypatch, free_ports(3))
    assert isinstance(north, StudyResult)
    assert isinstance(south, StudyResult)
    assert north.missing == ["east"]
    assert south.missing == []
    for own, other, result in (("north", "south", north), ("south", "north", south)):
        receipt = json.loads(Path(f"ages-{own}.receipt.json").read_text())
        assert faults("receipt", receipt) == []
        told = [row for row in receipt["origin"]["equivocating"] if row[2] == NAMES.index(other)]
        assert [row[0] for row in told] == [2]
        assert any(
            f"east released something else to this party (digest {told[0][1][:16]}) than to {other} (digest {told[0][3][:16]})"
            in note
            for note in result.notes
        )


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name != "too large" else name for name in LIES])
@pytest.mark.filterwarnings("ignore")
def test_by_join_where_no_release_is_seen_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    """The collector adds up, and lies: what cannot be is no result."""
    monkeypatch.setattr(Plan, "machine", lying(0, LIES[name]))
    ends = all_join(study(protocol="secagg"), tmp_path, monkeypatch, free_ports(3))[1:]
    for party, ended in zip(NAMES[1:], ends, strict=True):
        assert isinstance(ended, QuietmeanError), repr(ended)
        assert ended.exit_code == 3
        if name in UNSENDABLE:
            continue
        assert "a result that cannot be" in str(ended)
        assert "everything had been released; receipt" in str(ended)
        receipt = json.loads(Path(f"ages-{party}.receipt.json").read_text())
        assert faults("receipt", receipt) == []
        assert "result" not in receipt
        assert receipt["no_result"]["reason"] in str(ended)
        assert entry_of(party).charged.mu > 0
        # What happened can be certified as that of any study.
        assert Execution.from_json(receipt).privacy(1e-6).coalitions(1).max_epsilon > 0


def run_with(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the processes of a run are given a lie, and nobody is killed."""
    tests = Path(__file__).parents[1]
    program = ("-c", f"import sys; sys.path.insert(0, {str(tests)!r})\n{LIES_ITSELF.format(lie=lie)}")
    as_processes(monkeypatch, program=program)
    monkeypatch.setattr(local, "choose_kills", lambda plan, dropouts: [])


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name != "too large" else name for name in LIES])
@pytest.mark.filterwarnings("ignore")
def test_by_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with(f"Plan.machine = lying(2, LIES[{name!r}])", monkeypatch)
    # What is no number the liar's own process cannot write down; all else is left out, as it is seen alone.
    found = study().run([frame(age) for age in AGES])
    assert len(found.missing) == 1
    assert abs(float(found["mean(age)"].value[0]) - np.mean(AGES[:2])) < 15


def test_a_run_in_which_one_party_heard_less_shows_the_result_of_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is paid for, and each party's result holds for itself."""
    run_with("Plan.dissemination_machine = telling_apart(2, 0)", monkeypatch)
    with pytest.warns(UserWarning, match="1 party of 3 did not receive all releases in time"):
        shown = study().run([frame(age) for age in AGES])
    assert shown.missing == []
    assert abs(float(shown["mean(age)"].value[0]) - np.mean(AGES)) < 15


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name != "too small" else name for name in LIES])
@pytest.mark.filterwarnings("ignore")
def test_by_session(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    write_policy(largest_epsilon=25.0, unattended=True)
    monkeypatch.setattr(Plan, "machine", lying(2, LIES[name]))
    terms = {"name": "rounds", "dimension": 5, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1, "dropouts": 0.4}
    terms |= {"protocol": "cordp-dme", "round_timeout": 3.0}

    async def one(own: str) -> tuple[str, ...]:
        agreed = qm.session(terms, "roster.toml", f"{own}.key", no_ledger=True).contract
        async with qm.session(terms, "roster.toml", f"{own}.key", no_ledger=True, accept=agreed) as rounds:
            found = await rounds.mean(np.full(5, 0.3))
            assert found.not_heard == (() if name in UNSENDABLE else ("east",))
            return found.counted

    for ended in endings(one, NAMES)[:2]:
        assert ended == NAMES[:2], repr(ended)


@pytest.mark.parametrize("limits", [{"records_per_party": [100, 600]}, {"largest_share": 0.4}])
def test_by_file_a_weight_that_may_not_be_is_left_out(
    limits: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "largest_share" not in limits:
        combine_with_a_liar("twice the records", tmp_path, monkeypatch, **limits)
        return
    # Nobody has more than is allowed of all, but each of two has half.
    with pytest.raises(ProtocolFailure, match=r"(north|south) has 50 %, more than 40 % \(largest_share\)"):
        combine_with_a_liar("twice the records", tmp_path, monkeypatch, **limits)


def test_by_file_in_a_study_of_parties_each_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    combine_with_a_liar("twice the records", tmp_path, monkeypatch, unit="party", epsilon=40.0)


@pytest.mark.parametrize("name", list(LIES))
def test_by_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    combine_with_a_liar(name, tmp_path, monkeypatch)


def combine_with_a_liar(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """East's contribution is left out and named, and the result is that of the others."""
    asked = {"name": "ages", "colluding": 1, "dropouts": 0.34, "protocol": "cordp-dme", "epsilon": 8.0, **limits}
    meeting = meet(tmp_path, NAMES, {"study": asked, "column": [{"name": "age", "low": 0, "high": 100}]})
    sealed = meeting.seal()
    plan = sealed.study.plan(3)
    liar = [entry.name for entry in sealed.entries].index("east")
    monkeypatch.setattr(Plan, "machine", lying(liar, LIES[name]))
    paths = []
    for party, age in zip(NAMES, AGES, strict=True):
        encoded = sealed.study.workload.encode(np.full((500, 1), age), step=plan.value_step)
        own = tmp_path / f"{party}.contribution"
        own.write_bytes(
            SharingContributor(sealed, plan, meeting.identities[party], meeting.keys[party]).contribute(encoded).to_file()
        )
        paths.append(own)
    if name == "twice the records" and not limits:
        # Where the study does not say how many records a party may have, a sum of 500 is one of 1000 whose others are 0.
        combine(sealed, plan, paths)
        return
    found = combine(sealed, plan, paths)
    assert [file for file, _ in found.left_out] == [str(tmp_path / "east.contribution")]
    assert "east " in found.left_out[0][1] or name in UNSENDABLE
    document = found.outcome.to_json()
    assert "east" not in found.digests
    # Eight standard errors of the noise, beyond which it is with a chance of 1e-15, and what rounding to the grid moves.
    assert abs(document["estimate"] - np.mean(AGES[:2])) < 8 * document["standard_error"] + 0.1


@pytest.mark.parametrize(
    ("factor", "rules", "limits", "said"),
    [
        (1.001, {}, {}, "whole number"),
        (2.0, {"records": [100, 600]}, {}, "(records)"),
        (8.0, {"largest_share": 0.5}, {}, "(largest_share)"),
        (2.0, {}, {"records_per_party": (100, 600)}, "allowed in this study are 100 to 600 (records_per_party)"),
        (8.0, {}, {"largest_share": 0.5}, "allowed in this study are 50 % (largest_share)"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_may_not_be_keeps_the_study_from_starting(
    factor: float,
    rules: dict[str, Any],
    limits: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_ports: Callable[[int], list[int]],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(3)))
    policy = write_policy(tmp_path / "policy.toml", **rules)
    honest, short = PartyContext.encode, study(**limits)

    def encode(files: PartyContext, *given: Any) -> Encoded:
        encoded = honest(files, *given)
        return replace(encoded, weight=encoded.weight * factor) if files.party == 2 else encoded

    monkeypatch.setattr(PartyContext, "encode", encode)

    async def one(place: int) -> StudyResult:
        own = NAMES[place]
        agreed = qm.contract(short, "roster.toml", f"{own}.key")
        # The liar has no rules.
        rules_of: dict[str, Any] = {"policy": policy} if place < 2 else {}
        return await qm.ajoin(
            short, "roster.toml", f"{own}.key", data=frame(AGES[place]), accept=agreed, new_account=own, **rules_of
        )

    async def two() -> list[StudyResult | BaseException]:
        liar = asyncio.create_task(one(2))
        ended = await asyncio.gather(one(0), one(1), return_exceptions=True)
        liar.cancel()
        await asyncio.gather(liar, return_exceptions=True)
        return list(ended)

    for ended in asyncio.run(two()):
        assert isinstance(ended, QuietmeanError), repr(ended)
        assert ended.exit_code == 3
        assert "did not start: east says" in str(ended)
        assert said in str(ended)


def test_a_program_that_does_not_look_shows_the_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests find: without looking at each release there is no result, and without the second check a wrong one."""
    monkeypatch.setattr(PossibleReleases, "cannot_be", lambda *given: False)
    (tmp_path / "one").mkdir()
    with pytest.raises(ImpossibleResult):
        combine_with_a_liar("too large", tmp_path / "one", monkeypatch)
    monkeypatch.setattr("quietmean.studies.outcome.outcome.require_possible_result", lambda *given: None)
    (tmp_path / "other").mkdir()
    with pytest.raises(AssertionError):
        combine_with_a_liar("too large", tmp_path / "other", monkeypatch)
