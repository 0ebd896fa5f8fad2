"""A result says by how many members' sums it was checked, and how many wrong ones that excludes: the same wherever it is shown.

With as many sums as determine the result nothing is checked, and all places say that.
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
from quietmean.cli.main import main
from quietmean.protocols.packed_sharing.party import PackedSharingParty
from quietmean.studies.outcome.influence import checked_text
from quietmean.studies.outcome.tables import tables_of
from support.pages import words_of
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy

NAMES = ("north", "south", "east", "west", "hill", "shore")
# Options of six members with one colluding; how many sums determine a result, and how many wrong ones are noticed for certain.
CASES = [({"secrets": 5}, 6, 0), ({"secrets": 4}, 5, 1), ({"secrets": 3}, 4, 2), ({"secrets": 3, "lies": 1}, 4, 1)]
BY_OPTIONS = pytest.mark.parametrize(("options", "needed", "excluded"), CASES, ids=str)


def frame(party: str) -> pd.DataFrame:
    return pd.DataFrame({"age": np.full(40 + NAMES.index(party), 55.0)})


def asked(options: dict[str, int]) -> qm.Study:
    return qm.Study(
        {"age": (20, 90)}, ["mean(age)"], epsilon=8.0, delta=1e-6, name="ages", colluding=1, protocol="packed-sharing",
        options={"lies": 0} | options, accept_wide=True, round_timeout=5.0,
    )  # fmt: skip


def require_said(result: Any, sentence: str, excluded: int, page: str) -> None:
    """In Python, of the result and of what it is as JSON; and on the page."""
    assert result.checked == sentence
    document = result.to_json()
    assert checked_text(document["certificate"]["checked_by"]) == sentence
    # It is said of the study, once, and not of each answer.
    assert [flag for answer in result.outcome.answers for flag in answer.estimates.flags if flag.code == "unchecked"] == []
    notes = [note for table in tables_of(document) for note in table.notes if sentence.lower() in note.lower()]
    assert len(notes) == (0 if excluded else 1)
    assert page.lower().count(sentence.lower()) == 1


def sentence_of(sums: int, needed: int, excluded: int) -> str:
    sentence = checked_text({"sums": sums, "needed": needed, "lies_excluded": excluded})
    assert sentence.startswith("checked" if excluded else "unchecked")
    return sentence


@pytest.mark.sampled(2)
@BY_OPTIONS
def test_of_a_run(
    options: dict[str, int], needed: int, excluded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sentence = sentence_of(6, needed, excluded)
    ended = asked(options).run([frame(party) for party in NAMES])
    ended.save_report(tmp_path / "page.html")
    require_said(ended, sentence, excluded, words_of((tmp_path / "page.html").read_text()))
    pd.concat([frame(party).assign(site=party) for party in NAMES]).to_csv(tmp_path / "ages.csv", index=False)
    given = ["--data", str(tmp_path / "ages.csv"), "--party-column", "site", "mean(age in 20..90)"]
    given += ["--protocol", "packed-sharing", "--epsilon", "8", "--delta", "1e-6", "--colluding", "1"]
    given += [word for name, value in ({"lies": 0} | options).items() for word in ("--with", f"{name}={value}")]
    main(["run", *given, "--out", str(tmp_path / "out"), "--details"])
    assert capsys.readouterr().out.replace("\n", " ").count(sentence) == 1
    for page in ("report.html", "privacy.html"):
        assert words_of((tmp_path / "out" / page).read_text()).lower().count(sentence.lower()) == 1
    main(["run", *given, "--out", str(tmp_path / "other"), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert checked_text(document["certificate"]["checked_by"]) == sentence


def test_of_a_committee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five members of whom one may collude: three sums determine the result, and from five one wrong one is corrected."""
    sentence = sentence_of(5, 3, 1)
    pd.concat([frame(party).assign(site=party) for party in NAMES]).to_csv(tmp_path / "ages.csv", index=False)
    given = ["--data", str(tmp_path / "ages.csv"), "--party-column", "site", "mean(age in 20..90)"]
    given += ["--epsilon", "8", "--delta", "1e-6", "--committee", "5"]
    main(["run", *given, "--out", str(tmp_path / "out"), "--details"])
    assert capsys.readouterr().out.replace("\n", " ").count(sentence) == 1
    for page in ("report.html", "privacy.html"):
        words = words_of((tmp_path / "out" / page).read_text())
        assert words.count(sentence) == 1
        assert "makes its noisy value public" not in words
    receipt = json.loads((tmp_path / "out" / "receipt.json").read_text())
    assert checked_text(receipt["result"]["certificate"]["checked_by"]) == sentence


def lying_in_its_sum(liar: int) -> Callable[..., Any]:
    """In place of its adding up: one member's sum is wrong."""
    honest = PackedSharingParty._add_up

    def add_up(party: PackedSharingParty, state: Any) -> Any:
        added = honest(party, state)
        if party._party != liar or added.own is None:
            return added
        content = bytes([added.own.share.content[0] ^ 1]) + added.own.share.content[1:]
        own = replace(added.own, share=type(added.own.share)(content))
        return replace(added, own=own, sums=added.sums | {liar: own})

    return add_up


@pytest.mark.slow
@BY_OPTIONS
@pytest.mark.parametrize("lie", [False, True], ids=["honest", "with a wrong sum"])
@pytest.mark.filterwarnings("ignore")
def test_of_who_joins_and_of_a_session(
    options: dict[str, int], needed: int, excluded: int, lie: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    free_ports: Callable[[int], list[int]],
) -> None:  # fmt: skip
    """A wrong sum is corrected and named, or the result refused; with as many sums as are needed it is unchecked, and says so."""
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, free_ports(len(NAMES))))
    write_policy(largest_epsilon=25.0, unattended=True)
    sentence, study = sentence_of(6, needed, excluded), asked(options)
    if lie:
        monkeypatch.setattr(PackedSharingParty, "_add_up", lying_in_its_sum(2))
    corrected = bool(options.get("lies"))

    async def part(party: str) -> Any:
        agreed = qm.contract(study, "roster.toml", f"{party}.key")
        return await qm.ajoin(study, "roster.toml", f"{party}.key", data=frame(party), accept=agreed, no_ledger=True)

    terms = {"name": "rounds", "dimension": 5, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 1, "round_timeout": 5.0}
    terms |= {"protocol": "packed-sharing", "options": {"lies": 0} | options}

    async def round_of(party: str) -> Any:
        async with qm.session(terms, "roster.toml", f"{party}.key", no_ledger=True, yes=True) as rounds:
            return await rounds.mean(np.full(5, 0.3))

    async def all_of(each: Callable[[str], Any]) -> list[Any]:
        return await asyncio.gather(*map(each, NAMES), return_exceptions=True)

    for ended in asyncio.run(all_of(part)):
        if lie and excluded and not corrected:
            assert isinstance(ended, qm.QuietmeanError), repr(ended)
            assert "sums do not fit together" in str(ended)
            continue
        ended.save_report(tmp_path / "page.html", force=True)
        require_said(ended, sentence, excluded, words_of((tmp_path / "page.html").read_text()))
        named = any("member 2's sum disagrees" in note for note in ended.notes)
        assert named is (lie and corrected), ended.notes
    for ended in asyncio.run(all_of(round_of)):
        if lie and excluded and not corrected:
            assert isinstance(ended, qm.QuietmeanError), repr(ended)
            continue
        assert ended.checked == sentence
        assert ("unchecked" in repr(ended)) is (not excluded)
