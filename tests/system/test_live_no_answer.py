"""However a study without an answer ends: the screen is that of ``quietmean result``, says what stays paid, and nothing twice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli import by_file, join, run
from quietmean.cli.main import main
from quietmean.core.errors import NothingPublished, ProtocolFailure
from quietmean.core.file_kinds import read_json
from quietmean.graphs import ExecutionTrace
from quietmean.node import Series
from quietmean.planning import Plan
from quietmean.planning.gate import Decision, GateRecord, GateRefused
from quietmean.planning.influence import ImpossibleResult
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.studies.outcome.opened_by_committee import OpenedStudy
from quietmean.studies.party import part
from support.committee_study import CommitteeStudy
from support.kinds import SESSION
from support.site_files import JOIN, SEALED, site_in
from support.site_policy import write_policy

WHY = "east and 2 others disagree about a sum; nothing can be trusted"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all: it takes seconds to make."""
    with site_in(tmp_path_factory.mktemp("site")):
        yield


def executed(plan: Plan) -> Execution:
    return plan.execution(Seed.public("no answer"), ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties))


def refused(plan: Plan) -> GateRefused:
    return GateRefused(GateRecord(executed(plan), (), Decision(9.0, 1.0, True), {}, False))


FAILURES: dict[str, Callable[[Plan], ProtocolFailure]] = {
    "not finished": lambda plan: ProtocolFailure(WHY),
    "nothing published": lambda plan: NothingPublished(WHY),
    "impossible": lambda plan: ImpossibleResult(WHY, executed(plan)),
}


def fails_with(failure: Callable[[Plan], ProtocolFailure], plan_of: Callable[..., Plan]) -> Callable[..., Any]:
    def ends(*given: Any, **more: Any) -> Any:
        raise failure(plan_of(*given, **more))

    return ends


def later(ends: Callable[..., Any]) -> Callable[..., Any]:
    async def ends_later(*given: Any, **more: Any) -> Any:
        ends(*given, **more)

    return ends_later


@dataclass
class End:
    """What a command says that ends with code 3; the ``screen`` of its receipt, where it left one."""

    said: str
    screen: str
    receipt: Path | None


def end_of(line: str, capsys: pytest.CaptureFixture[str], receipt: Path | None) -> End:
    capsys.readouterr()
    assert code_of(line) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    if receipt is None:
        return End(printed.err, "", None)
    assert code_of(f"result {receipt}") == 3
    return End(printed.err, capsys.readouterr().out, receipt)


def code_of(line: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    return int(ended.value.code or 0)


def require_screen(end: End, why: str = WHY, paid: str = "at most") -> None:
    flat = " ".join(end.said.split())
    start = flat.index("No answer")
    assert flat.count(why[1:]) == 1
    assert paid in flat[start:]
    assert "Cost Kept: " in flat[start:]
    if end.receipt is not None:
        assert end.said.endswith(f"{end.screen}Receipt   {end.receipt}\n")
        reason, charged = (str(read_json(end.receipt)["no_result"][name]) for name in ("reason", "charged"))
        assert (reason in flat or reason[0].upper() + reason[1:] in flat, charged in flat) == (True, True)
    assert all(len(line) <= 80 for line in end.said[end.said.index("No answer") :].splitlines())


@pytest.mark.parametrize("account", ["--ledger {}.ledger --new-account ages", "--no-ledger"])
@pytest.mark.parametrize("name", FAILURES)
def test_of_a_party(
    site: None, name: str, account: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = account.format(name.replace(" ", "-"))
    monkeypatch.setattr(part, "run_party", later(fails_with(FAILURES[name], lambda settings, *_: settings.plan)))
    end = end_of(f"{JOIN} {account} --receipt end.json", capsys, Path("end.json"))
    paid = {"nothing published": "nothing but the sampler's part"}.get(name, "epsilon 0.50 (delta 1e-6) at most, ")
    require_screen(end, paid=paid)
    if name == "not finished":
        assert ("all that was reserved" in " ".join(end.said.split())) is account.startswith("--ledger")
    # A program gets the sentence, and one document.
    assert code_of(f"{JOIN} {account.replace('new-', '')} --receipt end.json --json") == 3
    printed = capsys.readouterr()
    assert "No answer" not in printed.err
    assert ("; charged: " in printed.err, "; receipt " in printed.err) == (True, True)
    assert '"exit": 3' in printed.out
    assert code_of(f"{JOIN} {account.replace('new-', '')} --receipt end.json --events") == 3
    assert "No answer" not in capsys.readouterr().err


@pytest.mark.parametrize("name", [*FAILURES, "gate"])
def test_of_a_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ages.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    failure = FAILURES.get(name, refused)
    monkeypatch.setattr(run, "execute", fails_with(failure, lambda study, plan, *_, **__: plan))
    protocol = "inca" if name == "gate" else "local-dp"
    line = f"run ages.csv 'mean(age in 0..100)' --parties 4 --colluding 1 --epsilon 4 --protocol {protocol} --out again"
    end = end_of(line, capsys, Path("again/receipt.json"))
    if name == "gate":
        require_screen(end, "No result, because the gate before the release is closed", "nothing was released from here")
    else:
        require_screen(end, paid="nothing but" if name == "nothing published" else "at most, in no ledger")


def test_of_files_that_are_added_up(site: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"study combine {SEALED} south.contribution --receipt added.json"
    too_few = "1 of 2 parties contributed, and the study is planned for 2"
    require_screen(end_of(line, capsys, Path("added.json")), too_few, "by every contribution")
    for failure in FAILURES.values():
        monkeypatch.setattr(by_file, "combine", fails_with(failure, lambda sealed, plan, files: plan))
        require_screen(end_of(line, capsys, Path("added.json")), paid="")


@pytest.mark.parametrize("where", ["among members", "opened"])
def test_of_a_committee(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    study = CommitteeStudy(tmp_path)
    write_policy(budget={"epsilon": 10.0, "delta": 1e-5}, unattended=True)
    Path("box").mkdir()
    fail = fails_with(FAILURES["not finished" if where == "among members" else "impossible"], lambda *_: study.plan)
    if where == "among members":
        monkeypatch.setattr(join, "open_with_others", later(fail))
    else:

        async def opened(*_: Any) -> Any:
            class Opened:
                checked, left_out = None, ()

            return Opened

        monkeypatch.setattr(join, "open_with_others", opened)
        monkeypatch.setattr(OpenedStudy, "of", fail)
    line = f"join {study.path.name} --key {study.key('m1').name} --yes --contributions box --receipt end.json"
    require_screen(end_of(line, capsys, Path("end.json")), paid="epsilon 8.00 (delta 1e-6) at most, by every contribution")


def test_of_a_round_of_a_session(site: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    SESSION.write()

    async def enters(series: Series) -> Series:
        return series

    async def leaves(*_: Any) -> None:
        pass

    async def fails(*_: Any) -> None:
        raise ProtocolFailure(WHY)

    for name, does in (("__aenter__", enters), ("__aexit__", leaves), ("mean", fails)):
        monkeypatch.setattr(Series, name, does)
    line = "join study.toml --roster roster.toml --key ada.key --policy policy.toml --yes --program train.py --no-ledger"
    require_screen(end_of(line, capsys, None), paid="0 of 3 rounds")
