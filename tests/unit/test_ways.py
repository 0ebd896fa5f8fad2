"""Ways without a server beside each other: error, who may collude, what a site does and sends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import quietmean as qm
from quietmean.cli import plan, plan_view
from quietmean.cli.main import main
from quietmean.planning import Plan
from quietmean.planning.automatic import USUAL, Way, compare_ways, propose
from quietmean.planning.candidates import Ranking, rank
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee


def ranking(dropouts: float = 0.1, epsilon: float = 1.0) -> Ranking:
    return rank(Target(40, epsilon, 1e-6, colluding=4, dropouts=dropouts), ["packed-sharing", "cordp-dme", "local-dp"])


def by_name(ways: list[Way]) -> dict[str, Way]:
    return {way.name: way for way in ways}


def test_three_ways_beside_each_other() -> None:
    ways = by_name(compare_ways(ranking()))
    assert list(ways) == ["peer to peer", "committee of 5", "by file"]
    peers, committee, file = ways.values()
    assert (peers.protocol, committee.protocol, file.protocol) == ("packed-sharing", "packed-sharing-committee", "cordp-dme")
    assert peers.against == "any 4 of the 40 sites"
    assert committee.against == "all other sites with any 1 of the 5 members"
    assert committee.steps.startswith("1 file")
    assert file.steps == "1 file"
    assert peers.steps.startswith("online together for ")
    assert None not in (peers.mse, committee.mse, file.mse, committee.over_central, committee.sent, peers.sent)
    # k = 4 dealings of noise, of which 3 are credited: 4/3 of a curator's, and what 4 of 40 that stay away cost besides.
    assert committee.over_central == pytest.approx(4 / 3 * (40 / 36) ** 2, rel=0.05)
    assert committee.sent < peers.sent  # type: ignore[operator]
    assert committee.to_json()["way"] == "committee of 5"


def test_by_file_nobody_may_be_missing_without_a_plan_for_it() -> None:
    file = by_name(compare_ways(ranking(dropouts=0.0)))["by file"]
    assert (file.protocol, file.against) == ("local-dp", "all others")


def test_by_file_a_site_sends_one_message() -> None:
    file = by_name(compare_ways(ranking(dropouts=0.0)))["by file"]
    local = next(one for one in ranking(dropouts=0.0) if one.plan.protocol.name == "local-dp")
    assert file.sent == pytest.approx(local.bytes_sent / 39)


def by_local_dp(parties: int, **more: Any) -> Plan:
    return rank(Target(parties, 1.0, 1e-6, colluding=4, **more), ["local-dp"]).best


def test_a_committee_is_proposed_to_many_and_for_one_message() -> None:
    few, many = by_local_dp(100), by_local_dp(101)
    said = propose(many)
    assert said is not None
    assert said.startswith("101 parties send one message each: a committee of 5 would open one file of each with 1.33 times ")
    # Each adds what a curator would once.
    assert float(said.split("local-dp has ")[1].split(" times")[0]) == pytest.approx(101, rel=0.02)
    assert "all other sites with any 1 of the 5 members may collude" in said
    assert "--committee 5" in said
    assert propose(few) is None
    alone = propose(few, one_message=True)
    assert alone is not None
    assert alone.startswith("each party is to send one message: a committee of 5 ")
    nine = propose(many, Committee(9, 2, 2))
    assert nine is not None
    assert nine.endswith("Ask for it with --committee 9.")


def test_no_committee_is_proposed_where_there_is_one_or_can_be_none() -> None:
    committee = qm.plan(parties=200, epsilon=1.0, delta=1e-6, committee=Committee(5))
    assert propose(committee) is None
    # More numbers than any of its sums hold.
    assert propose(by_local_dp(101), Committee(4, 1, 1, minimum=102), one_message=True) is None


@pytest.mark.parametrize(("more", "proposes"), [(["--protocol", "local-dp"], True), (["--protocol", "gopa"], False), ([], False)])
def test_new_proposes_one_for_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], proposes: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["study", "new", "mean(age in 0..100)", *more])
    said = " ".join(capsys.readouterr().out.split())
    assert ("open only the sum of all files" in said) is proposes
    if more[-1:] != ["gopa"]:
        # A study that names no protocol is for as many as come.
        main(["plan", "--study", "study.toml", "--parties", "20" if proposes else "101", "--json"])
        assert "a committee of 5 would open" in json.loads(capsys.readouterr().out)["proposed"]


def test_new_proposes_none_for_messages_through_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There each party meets the others several times: it does not hand in one file."""
    monkeypatch.chdir(tmp_path)
    main(["study", "new", "mean(age in 0..100)", "--protocol", "local-dp", "--transport", "folder"])
    assert "committee" not in capsys.readouterr().out


def test_two_hundred_parties_see_three_ways_in_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The other protocols take ten times as long, and stand in no row of it.
    monkeypatch.setattr(plan, "general_protocols", lambda server: ["packed-sharing", "local-dp"])
    line = ["plan", "--parties", "200"]
    main([*line, "--json"])
    document = json.loads(capsys.readouterr().out)
    peers, committee, file = document["ways"]
    assert (peers["protocol"], committee["protocol"], file["protocol"]) == (
        "packed-sharing",
        "packed-sharing-committee",
        "local-dp",
    )
    assert peers["mse"] < committee["mse"] < file["mse"] / 100
    assert file["sent"] < committee["sent"] < peers["sent"]
    assert document["proposed"].startswith("200 parties are seldom online together: a committee of 5 ")
    capsys.readouterr()
    main(line)
    first = capsys.readouterr().out
    rows = {row.split()[0]: row for row in first.replace("* ", "  ").splitlines() if row}
    # Each way is a row of the one table, once.
    assert "online together" in rows["packed-sharing"]
    assert "one file, 5 online" in rows["packed-sharing-committee"]
    assert "4 of 5 members" in rows["packed-sharing-committee"]
    assert "one file each" in rows["local-dp"]
    shown = io.StringIO()
    monkeypatch.setattr(plan_view, "out", Console(file=shown, width=200))
    main([*line, "--details"])
    table = shown.getvalue()
    for title in ("without a server", "predicted MSE", "who may collude", "steps a site", "bytes a site"):
        assert title in table
    for row in document["ways"]:
        assert row["against"] in table
        assert row["steps"] in table


def test_a_way_that_is_none_says_why() -> None:
    ways = by_name(compare_ways(rank(Target(40, 1.0, 1e-6, colluding=4), ["packed-sharing"]), Committee(9, 2, 2)))
    remedy = "Choose a larger epsilon, or fewer colluding parties."
    assert ways["by file"].against == f"none: no protocol by file keeps this target. {remedy}"
    assert ways["by file"].mse is None
    assert set(ways["by file"].to_json()) == {"way", "protocol", "against", "steps"}
    assert ways["committee of 9"].against == "all other sites with any 2 of the 9 members"
    assert USUAL.members == 5


def test_what_was_not_computed_comes_after_all_that_was() -> None:
    """Its error is a bound from below: beside predicted errors it would look better than it is."""
    rows = [
        plan_view.Row(name, error, "", "", False, least)
        for name, error, least in (("a", 0.4, False), ("b", 0.1, True), ("c", 0.5, False))
    ]
    kept = plan_view._kept(rows, "a")
    assert [row.name for row in kept] == ["a", "c", "b"]
    assert [line.split()[1:3] for line in plan_view._table(kept[-1:], {"protocol": "a", "mse_central": "inf"})][-1] == [
        "not",
        "computed",
    ]
