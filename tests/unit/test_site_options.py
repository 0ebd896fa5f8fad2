"""What a site may choose is the same list from the command line and from Python, and reaches the party."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from cyclopts import App

import quietmean as qm
from quietmean.cli import join
from quietmean.cli.main import main
from quietmean.core.domain import PrivacyUnit
from quietmean.core.keywords import keyword_names
from quietmean.core.site_options import ConsentOptions, PaymentOptions, SiteOptions
from quietmean.studies.party import ConsentInAdvance, Policy, payer_for

# An option of the command line that is repeated is a plural in Python.
PLURAL = {"approval": "approvals"}


def in_python(options: type[PaymentOptions]) -> set[str]:
    return {PLURAL.get(each.name, each.name) for each in fields(options)}


def test_python_has_every_option_of_a_site() -> None:
    assert in_python(SiteOptions) <= set(keyword_names(qm.join))
    # A session has no folder and no words yet.
    beyond = {"compared", "folder", "once"}
    assert in_python(SiteOptions) - beyond <= set(keyword_names(qm.session.__init__))


@pytest.mark.parametrize(
    ("command", "options"),
    [("join", SiteOptions), ("check", PaymentOptions), ("send", ConsentOptions)],
)
def test_commands_explain_every_option(command: str, options: type, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--help"])
    told = capsys.readouterr().out
    for each in fields(options):
        flag = f"--{each.name.replace('_', '-')}"
        (line,) = [line for line in told.splitlines() if f"{flag} " in f"{line} " and line.lstrip("│ *").startswith(flag)]
        # A text stands behind it, and flags have no second form.
        assert len(line.split()) > 3, line
    assert "--no-no-" not in told
    assert "--no-yes" not in told


def test_what_was_repeated_is_all_read(tmp_path: Path) -> None:
    read: list[SiteOptions] = []
    app = App()

    def command(study: Path, *, site: join.Site = SiteOptions()) -> None:  # noqa: B008 - it is frozen
        read.append(site)

    app.command(command, name="it")
    text = "it s --compared north --compared south --approval a --approval b --no-ledger --group 3 --listen here:1 --once"
    app(text.split(), result_action="return_value")
    (site,) = read
    assert list(site.compared or ()) == ["north", "south"]
    assert list(site.approval or ()) == [Path("a"), Path("b")]
    assert (site.no_ledger, site.group, site.listen, site.once, site.yes) == (True, 3, "here:1", True, False)
    with pytest.raises(qm.InputError):
        ConsentInAdvance.of(site)


def test_what_python_was_given_is_what_the_command_line_says() -> None:
    """Paths may be strings, a contract means its accept digest, and the docstring lists what may be given."""

    class Agreed:
        digest, accept_digest = "0123", "abcd"

    given = SiteOptions.of(
        {"policy": "p.toml", "accept": Agreed(), "approvals": ["a"], "ledger": "run", "passphrase": "no option"},
        "s",
        None,
    )
    same = SiteOptions(policy=Path("p.toml"), accept="abcd", approval=[Path("a")], ledger=Path("run"), store=Path("s").absolute())
    assert given == same
    assert SiteOptions.of({"policy": None, "accept": "ef"}) == SiteOptions(accept="ef")
    for function in (qm.join, qm.contribute, qm.session.__init__):
        text = function.__doc__ or ""
        assert all(f"``{name}``" in text for name in in_python(ConsentOptions))


def test_options_that_contradict_each_other_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    with pytest.raises(qm.InputError, match="--account cannot go with --no-ledger"):
        payer_for(Policy(), PrivacyUnit.RECORD, "wards", PaymentOptions(no_ledger=True, account="wards"))


def test_paths_are_those_of_the_folder_where_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a command, too: its program may change the folder."""
    monkeypatch.chdir(tmp_path)
    options = SiteOptions(store=Path("n.store"), receipt=Path("n.json"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (options.store, options.receipt) == (tmp_path / "n.store", tmp_path / "n.json")
    assert SiteOptions().store is SiteOptions().receipt is None
