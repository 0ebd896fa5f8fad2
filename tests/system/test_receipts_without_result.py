"""A charge always has a receipt: however a study ends after it was paid for, unless all is given back or it can go on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError, NothingPublished, NotStarted, NotYet, ProtocolFailure, StorageError
from quietmean.ledger import Ledger
from quietmean.node import NodeSettings
from quietmean.studies.outcome.json_schema import receipt_schema
from quietmean.studies.party import part
from support.command_lines import fails
from support.site_files import JOIN, Site, site_in

LINE = f"{JOIN} --ledger own.ledger --new-account ages --receipt end.json"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_in(tmp_path) as made:
        yield made


def ends_with(error: BaseException) -> Callable[..., Any]:
    async def ended(*_: Any, **__: Any) -> None:
        raise error

    return ended


def reserved() -> float:
    with Ledger.open(Path("own.ledger")) as book:
        return book.account("ages").charged_mu


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ProtocolFailure("bob never came"), 3),
        (NothingPublished("nobody published"), 3),
        (NotStarted("it started without this party"), 3),
        (InputError("the port is in use. Name another"), 2),
        (NotYet("it goes on"), 4),
        (StorageError("no space. Make room"), 75),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_end_after_a_charge_leaves_a_receipt_or_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    monkeypatch.setattr(part, "run_party", ends_with(error))
    reason = str(error)
    said = fails(shlex.split(LINE), capsys, code=code, warned=True)
    receipt = Path("end.json")
    goes_on = code in (2, 4, 75)
    # Nothing of a party that never started has left: all is given back.
    refunded = isinstance(error, NotStarted)
    assert receipt.exists() == (not goes_on and not refunded), said
    if not receipt.exists():
        return
    assert said.endswith(f"Receipt   {receipt}\n")
    document = json.loads(receipt.read_text())
    jsonschema.validate(document, receipt_schema())
    assert document["no_result"]["reason"] == reason
    assert document["origin"]["names"] == ["ada", "bob"]
    main(["verify", "receipt", "end.json"])
    shown = capsys.readouterr().out
    assert f"no result: {reason}" in shown
    assert ("at most" in shown) == (reserved() > 0), shown
    # The same party may continue, and its receipt is replaced.
    monkeypatch.setattr(part, "run_party", ends_with(ProtocolFailure("again")))
    fails(shlex.split(LINE.replace("--new-account", "--account")), capsys, code=3, warned=True)
    assert json.loads(receipt.read_text())["no_result"]["reason"] == "again"


def test_a_party_that_waits_alone_has_its_receipt_or_its_budget_back(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    Path("study.toml").write_text(Path("study.toml").read_text().replace("[study]", "[study]\nstart_timeout = 0.3"))
    said = fails(shlex.split(f"{LINE.replace('port 8', '')}"), capsys, code=3, warned=True)
    assert "did not start within 0.3 s" in said
    assert "What was reserved in the ledger is given back. Agree on a time, and type the same command again." in said
    assert not Path("end.json").exists()
    assert reserved() == 0.0


def test_who_waited_in_vain_pays_for_the_attempt_that_starts(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    again = LINE.replace("--new-account", "--account")
    never_came = NotStarted("did not start for want of bob", for_good=False)
    for line in (LINE, again, again):
        monkeypatch.setattr(part, "run_party", ends_with(never_came))
        assert "given back" in fails(shlex.split(line), capsys, code=3, warned=True)
        assert reserved() == 0.0

    async def bound(settings: NodeSettings, *_: Any) -> None:
        assert settings.site.before_bound is not None
        settings.site.before_bound("ab" * 32)
        raise never_came

    # From here on something may have left: whatever the error says, it is charged.
    for how in (bound, ends_with(never_came)):
        monkeypatch.setattr(part, "run_party", how)
        assert "stays in the ledger" in fails(shlex.split(again), capsys, code=3, warned=True)
        assert reserved() > 0.0
    assert Path("end.json").exists()
