"""No number breaks a command: every numeric option of every command, found from the parser, with numbers nobody should give.

Each ends in one sentence that names the option, with exit code 2 and nothing written, or the command goes on.
"""

from __future__ import annotations

import gc
import json
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

import quietmean as qm
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.limits import require_wait
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.testing.examples import example_execution
from support.hostile_numbers import VALUES, WITH, Option, all_options, fault, protocols_with, refusal
from support.outcomes import finished
from support.site_policy import write_policy
from support.smallest_study import STUDY

RUN = "run --data table.csv 'mean(age in 0..100)' --parties 4 --protocol {protocol} --out out --accept-wide"
NEW = "study new --out new.toml 'mean(age in 0..100)' --colluding 0 --protocol {protocol}"
IN_COMMITTEE = "study new --out new.toml 'mean(age in 0..100)' --committee 5 --contribute-by 2090-01-01T00:00:00Z"
PLAN = "plan --parties 6 --protocol {protocol}"
SITE = "study.toml --roster roster.toml --data table.csv --key ada.key --policy policy.toml --store my.store --ledger my.ledger"
# A right line for each command, to which an option is added, or in which it takes the place of one.
LINES = {
    "run": RUN,
    "study new": NEW,
    "site desk": "site desk . --no-browser",
    "check": f"check {SITE}",
    "join": f"join {SITE} --yes",
    "send": "send by-file.sealed --data table.csv --key south.key --out new.contribution --yes --ledger my.ledger",
    "serve relay": "serve relay --listen 127.0.0.1:9",
    "serve drop": "serve drop --study none.sealed --listen 127.0.0.1:9 --folder box",
    "verify receipt": "verify receipt execution.json",
    "verify attack": "verify attack execution.json --target 1 --trials 100",
    "plan": PLAN,
    "simulate": "simulate plan.json --runs 3",
    "study mock": "study mock study.toml",
    "demo": "demo none.toml --out new",
    "study synthesize": "study synthesize receipt.json",
    "study vouchers": "study vouchers vouched.invitation --key ada.key",
    "site budget": "site budget --ledger my.ledger --account ages --budget 1 1e-6",
}
WITHOUT_PRIVACY = ("gossip", "secret-sharing")
# Where an option says something only beside others.
BESIDE = {
    "plan --records": "plan --study study.toml --parties 3 --records 900",
    "plan --width": "plan --study study.toml --parties 3 --records 900 --width 1",
    "plan --power": "plan --study study.toml --parties 3 --records 900 --power 0.8",
    "verify receipt --seed": "verify receipt execution.json --observe-fraction 0.5 --seed 1",
    "run --most-records": f"{RUN} --count private",
    "run --with aggregator": f"{RUN} --a-priori-above-target",
    "study new --most-records": f"{NEW} --count private",
    "study new --deadline-interval": f"{NEW} --transport folder",
    "study new --poll": f"{NEW} --transport folder",
    "study new --vouchers": f"{IN_COMMITTEE} --registrar ed25519:MM2U3gdOPWrhlzc7Z5BznUhXcSQaHKFUvoZFh0+yBAM=",
}


@cache
def receipt_of_a_synthetic_table() -> str:
    return json.dumps(finished("synthetic-table(x, arm, yes, pairs=x:arm, bins=4)").receipt(), default=str)


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = []
    for port, name in enumerate(("ada", "bob"), 8):
        identity = Identity.generate()
        identity.save(tmp_path / f"{name}.key")
        entries.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\nkey = "{identity.public_key}"\n')
    Path("roster.toml").write_text("\n".join(entries))
    Path("study.toml").write_text(STUDY)
    Path("table.csv").write_text("age\n" + "\n".join(str(20 + row % 60) for row in range(400)))
    for account, unit in (("table", "record"), ("table-party", "party")):
        with Ledger.open(Path("my.ledger"), create=True) as book:
            book.set_budget(account, 9.0, 1e-3, when=datetime.now(UTC), unit=PrivacyUnit(unit))
    committee = {
        "members": 4,
        "contribute_by": "2090-01-01T00:00:00Z",
        "registrar": Identity.load(tmp_path / "ada.key").public_key,
        "vouchers": 3,
    }
    terms = {"name": "pay", "column": [{"name": "pay", "low": 0.0, "high": 1.0}], "unit": "party", "committee": committee}
    invitation = Invitation.make(StudyTerms.parse(terms), Identity.load(tmp_path / "bob.key"))
    (tmp_path / "vouched.invitation").write_bytes(invitation.signed.to_file())
    write_policy(tmp_path / "policy.toml", least_colluding=0, unattended=True)
    example_execution("local-dp", 4, sigma=1.0).save(Path("execution.json"))
    Path("receipt.json").write_text(receipt_of_a_synthetic_table())
    qm.LocalDP().calibrate(qm.Target(parties=4, epsilon=1.0, delta=1e-6)).save(Path("plan.json"))


def line_with(option: Option, value: str, protocol: str = "local-dp") -> list[str]:
    """A right line in which the option has this value."""
    words = right_line(option, protocol)
    given = [f"{option.name}={value}"] if option.values == 1 else [option.name, value, "1"]
    if option.name.startswith(f"{WITH} "):
        return [*words, WITH, f"{option.name.removeprefix(WITH).strip()}={value}"]
    if option.name in words:
        place = words.index(option.name)
        return [*words[:place], *given, *words[place + 1 + option.values :]]
    return [*words, *given]


def lines(option: Option, protocol: str, values: tuple[str, ...]) -> Iterator[list[str]]:
    for value in values:
        line = line_with(option, value, protocol)
        yield line
        if option.values == 2:
            yield [*line[: line.index(option.name) + 1], "0", value, *line[line.index(option.name) + 3 :]]


def right_line(option: Option, protocol: str) -> list[str]:
    words = shlex.split(BESIDE.get(str(option), LINES[option.command]).format(protocol=protocol))
    return [*words, "--no-privacy"] if protocol in WITHOUT_PRIVACY and option.command in ("run", "plan") else words


def faults(option: Option, values: tuple[str, ...], capsys: pytest.CaptureFixture[str], seconds: float = 30.0) -> list[str]:
    found = []
    for protocol in protocols_with(option.name) or ["local-dp"]:
        known = refusal(right_line(option, protocol), capsys)
        # What the right line left open is no part of what a wrong one says.
        gc.collect()
        capsys.readouterr()
        found += [fault(line, option.name, capsys, seconds, known) for line in lines(option, protocol, values)]
    return [one for one in found if one]


def test_every_command_with_numbers_has_a_line() -> None:
    assert {one.command for one in all_options()} == set(LINES)
    assert set(BESIDE) <= {str(one) for one in all_options()}


QUICK = {
    "serve relay", "serve drop", "site budget", "study vouchers", "study mock", "study synthesize", "simulate", "verify receipt",
    "check", "demo",
}  # fmt: skip
AT_ONCE = [one for one in all_options() if one.command in QUICK]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("option", AT_ONCE, ids=str)
def test_some_numbers_of_commands_that_answer_at_once(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(option, ("nan", "-1", "1e308", str(10**400)), capsys) == []


@pytest.mark.sampled(8)
@pytest.mark.parametrize("option", [one for one in all_options() if one.command == "run"], ids=str)
def test_what_run_takes_each_of_its_processes_takes(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(option, ("inf", "1e308"), capsys) == []


@pytest.mark.parametrize("name", ["round_timeout", "start_timeout"])
@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, 2678401.0, 0.0, -1.0])
def test_no_study_no_session_and_no_node_waits_so_long(name: str, seconds: float) -> None:
    study = {"name": "ages", "column": [{"name": "age", "low": 0.0, "high": 1.0}], name: seconds}
    with pytest.raises(InputError, match=name):
        StudyTerms.parse(study)
    with pytest.raises(InputError, match=name):
        SessionStudy.parse({"dimension": 2, "rounds": 1, name: seconds})
    with pytest.raises(InputError, match=f"{name} is .* seconds"):
        require_wait(name, seconds)


@pytest.mark.slow
@pytest.mark.parametrize("option", all_options(), ids=str)
def test_each_number_of_each_option(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    assert faults(option, VALUES, capsys) == []
