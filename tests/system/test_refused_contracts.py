"""Whatever a study is refused for, before it starts: one sentence, exit code 2, and not a byte that is not as it was before.

A ledger, keys, data and policy lie there. Neither ``join`` nor ``run`` nor ``accept`` reserves, writes or removes anything in
that folder, or in this user's own, for a study that they refuse; but for a line in the log of what a site was asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.folders import configuration_folder, data_folder
from quietmean.core.schema import options_of
from quietmean.ledger import Ledger
from quietmean.node import Identity, Roster
from quietmean.protocols import registry
from support.rosters import on_this_machine, write_roster
from support.site_policy import toml, write_policy

NAMES = ("ada", "bob", "cyd")
STUDY: dict[str, Any] = {"name": "ages", "epsilon": 1.0, "delta": 1e-6, "colluding": 1, "protocol": "packed-sharing"}
COLUMN: dict[str, Any] = {"name": "age", "low": 0, "high": 100}
NATS: dict[str, Any] = {"epsilon": None, "unit": "party", "nats": 0.6, "protocol": "adqsp"}
JOIN = ("--roster", "roster.toml", "--key", "ada.key", "--data", "ada.csv", "--ledger", "ada.ledger", "--yes")
RUN = ("--data", "ada.csv", "mean(age in 0..100)", "--parties", "3", "--out", "made")
# What the site was asked is not what it paid.
LOG = "audit.jsonl"
Change = Callable[[], object]


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # So that what is refused wrongly ends, too.
    write_roster(tmp_path, on_this_machine(NAMES, (1, 2, 3)))
    write_policy(unattended=True)
    write_study()
    Path("ada.csv").write_text("age\n" + "".join(f"{20 + row}\n" for row in range(30)))
    with Ledger.open(Path("ada.ledger"), create=True) as book:
        book.set_budget("ada", 1.5, 1e-5, when=datetime.now(UTC), unit=PrivacyUnit.RECORD)
    return tmp_path


def write_study(column: dict[str, Any] | None = None, **changes: Any) -> None:
    study = {key: value for key, value in {**STUDY, **changes}.items() if value is not None}
    options = study.pop("options", None)
    tables = {"study": study} | ({} if options is None else {"study.options": options})
    Path("study.toml").write_text(toml({**tables, "column": [{**COLUMN, **(column or {})}]}))


def everything(folder: Path) -> dict[Path, bytes]:
    """All files of this folder and of this user."""
    roots = (folder, configuration_folder(), data_folder())
    return {path: path.read_bytes() if path.is_file() else b"" for root in roots for path in root.rglob("*") if path.name != LOG}


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *line: str) -> str:
    """The sentence of a command that must leave everything as it was."""
    before = everything(folder)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(line))
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    *_, sentence = [text for text in said.splitlines() if text.startswith("quietmean: ")]
    assert "Traceback" not in said
    assert said.endswith(sentence + "\n"), "nothing after it"
    after = everything(folder)
    assert {path for path in before | after if before.get(path) != after.get(path)} == set()
    return sentence


def studies(**changes: Any) -> Change:
    return lambda: write_study(**changes)


def policies(**rules: Any) -> Change:
    return lambda: write_policy(**{"unattended": True, **rules})


def writes(name: str, text: str) -> Change:
    return lambda: Path(name).write_text(text)


def in_nats_as_the_policy_allows() -> None:
    write_study(**NATS)
    write_policy(unattended=True, largest_nats=1.0)


def distrusts_bob() -> None:
    main(["key", "revoke", Roster.load(Path("roster.toml")).entries[1].public_key])


# What is changed, what is typed instead, and what the sentence says. By what refuses: the policy, the target, the protocol, keys,
# the clock, the budget, data, and who is asked.
JOINED: dict[str, tuple[Change | None, tuple[str, ...], str]] = {
    "policy: epsilon": (policies(largest_epsilon=0.5), (), "largest_epsilon"),
    "policy: delta": (policies(largest_delta=1e-9), (), "largest_delta"),
    "policy: protocol": (policies(protocols=["inca"]), (), "protocols"),
    "policy: column": (policies(never=["age"]), (), "never"),
    "policy: parties": (policies(smallest_parties=4), (), "smallest_parties"),
    "policy: colluding": (policies(least_colluding=2), (), "least_colluding"),
    "policy: records": (policies(smallest_records=31), (), "smallest_records"),
    "policy: nats": (studies(**NATS), (), "largest_nats"),
    "policy: approvers": (policies(approvers=[Identity.generate().public_key]), (), "approv"),
    "policy: is none": (lambda: write_policy().write_text("[policy"), (), "policy.toml"),
    "target: epsilon": (studies(epsilon=0.0), (), "epsilon"),
    "target: nats beside a ledger": (in_nats_as_the_policy_allows, (), "no budget counts it. Give --no-ledger"),
    "target: too few nats": (studies(**{**NATS, "nats": 0.1}), ("--no-ledger",), "by itself"),
    "target: too few iterations": (studies(**NATS, options={"iterations": 2}), ("--no-ledger",), "do not have the mean yet"),
    "target: not promised": (studies(protocol="adqsp", options={"open_edges": "each"}), (), "--a-priori-above-target"),
    "target: read": (studies(eavesdropping=0.5), (), "promises nothing where each message is read"),
    "target: who reads": (studies(eavesdropping=2.0), (), "eavesdropping is 2"),
    "target: colluding": (studies(colluding=3), (), "leaves nobody honest"),
    "protocol: unknown": (studies(protocol="adsqp"), (), "did you mean 'adqsp'?"),
    "protocol: no privacy": (studies(protocol="gossip"), (), "--no-privacy"),
    "protocol: privacy nobody wants": (None, ("--no-privacy",), "Leave --no-privacy"),
    "protocol: option of another": (studies(options={"theta": 0.5}), (), "theta"),
    "protocol: more than there are": (studies(protocol="gopa", options={"partners": 3}), (), "Choose 1..2"),
    "protocol: dropouts": (studies(protocol="adqsp", dropouts=0.4), (), "Plan it with dropouts 0"),
    "key: in no roster": (lambda: main(["key", "new", "--key", "eve.key"]), ("--key", "eve.key"), "roster"),
    "key: missing": (None, ("--key", "none.key"), "none.key"),
    "key: distrusted": (distrusts_bob, (), "distrust"),
    "budget: too little": (studies(epsilon=3.0), (), "left"),
    "budget: no account": (None, ("--account", "eve"), "account"),
    "budget: no ledger": (None, ("--ledger", "none.ledger"), "none.ledger"),
    "data: missing": (None, ("--data", "none.csv"), "none.csv"),
    "data: no such column": (studies(column={"name": "weight"}), (), "weight"),
    "data: none": (writes("ada.csv", "age\n"), (), "ada.csv"),
    "asked: another contract": (None, ("--accept", "0" * 32), "--accept"),
    "asked: nobody": (policies(unattended=False), (), "unattended"),
    "plan: of another study": (writes("plan.json", "{}"), ("--plan", "plan.json"), "not a plan"),
    "receipt: no receipt": (writes("kept.json", "[1, 2]"), ("--receipt", "kept.json"), "kept.json"),
}


@pytest.mark.sampled(14)
@pytest.mark.parametrize("why", JOINED)
def test_join_reserves_nothing(folder: Path, capsys: pytest.CaptureFixture[str], why: str) -> None:
    change, typed, said = JOINED[why]
    if change is not None:
        change()
    line = list(JOIN)
    if "--no-ledger" in typed or "--accept" in typed:
        del line[line.index("--ledger") : line.index("--ledger") + (2 if "--no-ledger" in typed else 0)]
    if "--accept" in typed:
        line.remove("--yes")
    assert said in refused(capsys, folder, "join", "study.toml", *replaced(line, typed))


def replaced(line: list[str], typed: tuple[str, ...]) -> list[str]:
    """The options that are typed instead of those of the same name."""
    kept = list(line)
    for place, word in enumerate(typed):
        if word.startswith("--") and word in kept:
            at = kept.index(word)
            del kept[at : at + (2 if place + 1 < len(typed) and not typed[place + 1].startswith("--") else 1)]
    return [*kept, *typed]


RAN: dict[str, tuple[str, ...]] = {
    "epsilon": ("--epsilon", "0"),
    "nats by another protocol": ("--nats", "0.4", "--unit", "party", "--protocol", "inca"),
    "nats beside epsilon": ("--nats", "0.4", "--epsilon", "1", "--unit", "party", "--protocol", "adqsp"),
    "nats for records": ("--nats", "0.4", "--protocol", "adqsp"),
    "too few nats": ("--nats", "0.01", "--unit", "party", "--protocol", "adqsp"),
    "who reads": ("--eavesdropping", "half"),
    "read": ("--eavesdropping", "0.5", "--protocol", "secagg"),
    "not promised": ("--protocol", "adqsp"),
    "no privacy": ("--protocol", "secret-sharing"),
    "privacy nobody wants": ("--protocol", "inca", "--no-privacy"),
    "unknown protocol": ("--protocol", "adsqp"),
    "alias and option": ("--protocol", "pdmm", "--with", "theta=0.5"),
    "option of another": ("--protocol", "inca", "--with", "theta=0.5"),
    "radius": ("--protocol", "cordp-dme", "--with", "radius=0"),
    "radius too small": ("--protocol", "cordp-dme", "--with", "decoder=biased", "--with", "radius=0.1"),
    "odd partners": ("--protocol", "cordp-dme", "--with", "partners=3"),
    "too many partners": ("--protocol", "gopa", "--with", "partners=3"),
    "least partners": ("--protocol", "gopa", "--with", "least-partners=3"),
    "too many neighbours": ("--protocol", "muffliato", "--with", "neighbours=3"),
    "iterations": ("--protocol", "adqsp", "--with", "iterations=2"),
    "iterations of shares": ("--protocol", "secret-sharing", "--with", "iterations=2", "--no-privacy"),
    "colluding": ("--colluding", "3"),
    "data": ("--data", "none.csv"),
    "column": ("mean(weight)",),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("why", RAN)
def test_run_makes_nothing(folder: Path, capsys: pytest.CaptureFixture[str], why: str) -> None:
    refused(capsys, folder, "run", *replaced(list(RUN), RAN[why]))


def invited() -> None:
    main(["key", "new", "--key", "convener.key"])
    main(["study", "invite", "study.toml", "--key", "convener.key", "--out", "study.invitation"])


def distrusts_the_convener() -> None:
    invited()
    main(["key", "revoke", Identity.load(Path("convener.key")).public_key])


def forged() -> None:
    invited()
    content = Path("study.invitation").read_text()
    Path("study.invitation").write_text(content.replace("ages", "agez"))


def no_key() -> None:
    invited()
    Path("ada.key").write_text("no key")


ACCEPTED: dict[str, tuple[Change, tuple[str, ...], str]] = {
    "no invitation": (lambda: None, (), "study.invitation"),
    "forged": (forged, (), "invitation"),
    "distrusted": (distrusts_the_convener, (), "distrust"),
    "name": (invited, ("--name", ""), "name"),
    "address": (invited, ("--address", "nowhere"), "nowhere"),
    "store": (invited, ("--store", "none"), "store none is not a folder"),
    "key": (no_key, (), "ada.key"),
    "replaces": (invited, ("--replaces", "none.key"), "none.key"),
    "out": (invited, ("--out", "ada.csv"), "ada.csv"),
    "member of no committee": (invited, ("--member",), "committee"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("why", ACCEPTED)
def test_accept_makes_nothing(folder: Path, capsys: pytest.CaptureFixture[str], why: str) -> None:
    change, typed, said = ACCEPTED[why]
    change()
    line = ["--key", "ada.key", "--name", "ada", "--address", "127.0.0.1:7001"]
    assert said in refused(capsys, folder, "accept", "study.invitation", *replaced(line, typed))


PAPERS = ("consensus", "cordp-dme", "gopa", "inca")
OPTIONS = [(name, key) for name in PAPERS for key in options_of(registry()[name])]
# Of another type, beyond all use, no number.
VALUES: tuple[Any, ...] = (-1, 0, 1e300, -1e-300, math.nan, math.inf, "", "x", True, [1], 10**30, 0.5)


class _TakenError(Exception):
    """Processes would start."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "key"), OPTIONS)
def test_run_takes_an_option_or_says_why_not(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    def execute(*given: Any) -> None:
        raise _TakenError

    monkeypatch.setattr("quietmean.cli.run.execute", execute)
    flag = options_of(registry()[name])[key].flag or key
    for value in VALUES:
        with suppress(_TakenError):
            refused(capsys, folder, "run", *RUN, "--protocol", name, "--a-priori-above-target", f"--{flag}={value}")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "key"), OPTIONS)
def test_join_refuses_what_its_contract_does(folder: Path, capsys: pytest.CaptureFixture[str], name: str, key: str) -> None:
    for value in VALUES:
        write_study(protocol=name, options={key: value})
        try:
            main(["site", "contract", "study.toml", "--roster", "roster.toml", "--key", "ada.key"])
        except SystemExit:
            refused(capsys, folder, "join", "study.toml", *JOIN)
