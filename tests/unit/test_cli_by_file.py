"""``contribute`` and ``combine`` on the command line: the page's commands, twice in order; charged once."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.studies.study_keys import write_private
from support.pages import commands

PARTIES = ("north", "south", "east", "west", "inland")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", io.StringIO())


def refused(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    errors = capsys.readouterr().err
    assert ended.value.code == code, errors
    return errors


def told(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(shlex.split(line)[1:])
    return capsys.readouterr().out


def test_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    new, keygen, invite, accept, seal, words, budget, contribute, combine, certify = commands("how-to/by-file.md")
    for line in (new, keygen, invite):
        told(line, capsys)
    for number, name in enumerate(PARTIES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(str(20 + (7 * row + number) % 60) for row in range(400)))
        told(accept.replace("south", name), capsys)
    told(seal, capsys)
    digest = told(words, capsys).split("digest ")[1].split()[0]
    told(budget, capsys)
    give = contribute.replace("DIGEST", digest)
    assert "nobody said yes" in refused(shlex.split(contribute.split(" --accept")[0])[1:], capsys)
    keys = next(Path().glob("south-*.studykeys"))
    before = keys.read_bytes()
    told(give, capsys)
    first = Path("south.contribution").read_bytes()
    told(give, capsys)
    assert Path("south.contribution").read_bytes() == first
    (account,) = json.loads(told(f"{budget.split(' --account')[0]} --json", capsys))["accounts"]
    assert len(account["entries"]) == 1
    assert account["charged_mu"] > 0
    # Other data are refused before anything is written or charged, under another account as well.
    data = Path("south.csv").read_text()
    Path("south.csv").write_text(data.replace("27", "28"))
    Path("south.contribution").unlink()
    assert "contributed other data" in refused(shlex.split(give)[1:], capsys)
    assert not Path("south.contribution").exists()
    Path("south.csv").write_text(data)
    told(give, capsys)
    assert json.loads(told(f"{budget.split(' --account')[0]} --json", capsys))["accounts"] == [account]
    # On a clone of the machine, with a store from before, the ledger still knows.
    monkeypatch.setenv("XDG_CONFIG_HOME", "clone")
    after = keys.read_bytes()
    write_private(keys, before)
    Path("south.csv").write_text(data.replace("27", "28"))
    assert "knows another contribution" in refused(shlex.split(give)[1:], capsys)
    Path("south.csv").write_text(data)
    write_private(keys, after)
    assert "gave no address" in refused(["join", "study.sealed", "--key", "south.key", "--data", "south.csv"], capsys)
    without_ledger = give.split(" --ledger")[0] + f" --accept {digest}"
    for name in PARTIES[:1] + PARTIES[2:4]:
        told(without_ledger.replace("south", name), capsys)
    for _ in range(2):
        shown = told(combine.replace("*.contribution", " ".join(map(str, sorted(Path().glob("*.contribution"))))), capsys)
        assert shown.startswith("4 of 5 parties are in this result; NOT in it: inland")
        assert Path("study.privacy.html").exists()
    assert "epsilon" in told(certify, capsys)
    assert "planned for 4" in refused(["combine", "study.sealed", "north.contribution"], capsys, 3)
