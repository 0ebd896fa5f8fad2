"""What ``verify receipt``, ``verify attack`` and ``result`` print first: the verdict, in at most 12 lines of 80 columns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.protocols.execution import Execution
from quietmean.studies.party.session_contract import SessionContract, contract_for
from quietmean.testing import example_execution
from support.kinds import SESSION
from support.meeting import meet
from support.outcomes import session_receipt, studied

NAMES = [f"site {number}" for number in range(9)]
Shown = Callable[..., list[str]]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """The lines that a command prints of an execution, with ``changes`` made to its receipt."""
    # A path is not broken over lines, and the one of a test's folder may be longer than a line.
    monkeypatch.chdir(tmp_path)

    def lines(execution: Execution, colluding: int, *options: str, what: str = "receipt", **changes: Any) -> list[str]:
        path = Path("r.json")
        path.unlink(missing_ok=True)
        studied(execution, colluding).save_receipt(path, {"names": NAMES[: execution.parties]})
        raw = json.loads(path.read_text())
        for key, value in changes.items():
            raw[key] = {**raw[key], **value}
        path.write_text(json.dumps(raw))
        capsys.readouterr()
        main(["verify", what, str(path), *options])
        return capsys.readouterr().out.splitlines()

    return lines


LOCAL = example_execution("local-dp", 4, sigma=2.0)
SUMS = example_execution("central-dp", 6, sigma=1.0)
LATE = example_execution("inca", 9, 2, rounds=5, sigma_star=0.4, sigma_delta=1.5, injection="early", out_degree=2)


def text(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("execution", [LOCAL, SUMS, LATE], ids=["local-dp", "central-dp", "inca"])
@pytest.mark.parametrize("options", [(), ("--corrupt", "1"), ("--colluding", "2"), ("--epsilon", "1"), ("--delta", "1e-4")])
def test_a_screen_is_short_and_details_have_all(shown: Shown, execution: Execution, options: tuple[str, ...]) -> None:
    first, details = shown(execution, 1, *options), shown(execution, 1, *options, "--details")
    assert len(first) <= 12
    assert max(map(len, first)) <= 80
    assert details[: len(first)] == first
    assert "cannot tell whether values or logs were false" in text(first)
    told = text(details[len(first) :])
    facts = ["realised (given who took part)", "realised cost of each party; sensitivity", "claim: ", "these figures assume"]
    assert [fact for fact in facts if fact not in told] == []
    # A row for each party, and every assumption: one line for all that the same people must see to.
    assert [name for name in NAMES[: execution.parties] if name not in told and options != ("--corrupt", "1")] == []
    count = int(text(first).split(" assumptions: --details")[0].split()[-1])
    assert f"these figures assume {count} things (--json has each in full):" in told
    said = told.partition("in full):")[2]
    assert said.count(" must see to this: ") + said.count("What the figures mean: ") <= 8
    more = sum(int(number) for number in re.findall(r" And (\d+) more\.", said))
    assert sum(line.startswith("- ") for line in details) + more == count


def test_what_holds_is_ok_and_what_does_not_is_as_plain(shown: Shown) -> None:
    epsilon = LOCAL.privacy(1e-6).coalitions(1).max_epsilon
    for target, verdict in ((epsilon, "OK"), (epsilon / 2, "NO")):
        lines = shown(LOCAL, 1, certify={"epsilon": target, "delta": 1e-6, "colluding": 1})
        assert next(line[:4] for line in lines if line[:2] in ("OK", "NO")) == f"{verdict}  "
        assert ("above the target epsilon" in text(lines)) == (verdict == "NO")


def test_a_receipt_that_states_less_than_it_shows_is_not_ok(shown: Shown) -> None:
    target = {"epsilon": 100.0, "delta": 1e-6, "colluding": 1}
    epsilon = LOCAL.privacy(1e-6).coalitions(1).max_epsilon
    honest = text(shown(LOCAL, 1, certify=target, result={"epsilon": epsilon, "delta": 1e-6}))
    forged = text(shown(LOCAL, 1, certify=target, result={"epsilon": epsilon * 0.9, "delta": 1e-6}))
    assert "NO " not in honest
    assert "OK This receipt holds." in honest
    assert "The receipt itself states no less: realised epsilon" in honest
    assert "NO This receipt does not hold. It states realised epsilon" in forged
    assert "OK " not in forged
    assert "Keep this file, and tell all parties." in forged
    # Of another adversary, or another delta, it states nothing.
    for options in (("--colluding", "2"), ("--delta", "1e-4")):
        assert "states epsilon" not in text(shown(LOCAL, 1, *options, certify=target, result={"epsilon": 0.1, "delta": 1e-6}))


def test_equal_parties_are_one_line_and_different_ones_the_worst_three(shown: Shown) -> None:
    assert "for every party" in text(shown(LOCAL, 1))
    lines = shown(LATE, 1)
    assert "for the worst party" in text(lines)
    epsilons = LATE.privacy(1e-6).coalitions(1).epsilon
    worst = sorted(range(9), key=lambda party: -epsilons[party])
    assert f"{NAMES[worst[0]]} " in text(lines)
    assert sum(text(lines).count(name) for name in NAMES) == 3
    assert "; 6 other parties with no more" in text(lines)


def test_nothing_hidden_is_said_first(shown: Shown) -> None:
    lines = shown(example_execution("gossip", 4, rounds=4), 1)
    assert any(line.startswith("NO  This receipt does not hold. No privacy") for line in lines)


def test_an_attack_says_what_it_could_have_found(shown: Shown) -> None:
    common = ("--target", "site 1", "--corrupt", "site 0,3", "--trials", "500")
    lines = shown(LOCAL, 1, *common, what="attack")
    assert len(lines) <= 8
    assert max(map(len, lines)) <= 80
    assert text(lines).startswith("Attacked site 1 with what site 0 and site 3 saw, 500 runs")
    assert "OK  no contradiction (p = " in "\n".join(lines)
    assert "An attack that finds nothing proves nothing." in text(lines)
    assert "9 of 10 attacks notice it (--trials 100000: " in text(lines)
    details = text(shown(LOCAL, 1, *common, "--details", what="attack"))
    assert "mu is at least" in details
    assert "95% confidence" in details
    assert "if the promise is kept, 500 runs find epsilon" in details
    assert "nothing contradicts the certificate" in details


def test_an_attack_does_not_reassure_of_a_promise_that_hides_nothing(shown: Shown) -> None:
    lines = shown(example_execution("local-dp", 4, sigma=0.05), 1, "--target", "site 1", "--trials", "500", what="attack")
    assert "OK" not in text(lines)
    assert "but it hides hardly anything" in text(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("means", [0, 1])
def test_a_session_whose_rounds_all_failed_has_no_answer(
    means: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen says so with what it cost, and ends as a study without an answer does."""
    monkeypatch.chdir(tmp_path)
    contract = contract_for("south", meet(tmp_path, tables=SESSION.tables).seal())
    assert isinstance(contract, SessionContract)
    rounds = contract.study.rounds
    receipt = session_receipt(contract, (means,) * len(contract.parties), {})
    Path("rounds.receipt.json").write_text(json.dumps(receipt))
    code: object = 0
    try:
        main(["result", "rounds.receipt.json"])
    except SystemExit as end:
        code = end.code
    said = " ".join(capsys.readouterr().out.split())
    if means:
        assert (
            code,
            f"{rounds} of {rounds} rounds began. Answers 1 of {rounds} rounds gave an answer Privacy epsilon" in said,
        ) == (
            0,
            True,
        )
    else:
        assert said.startswith(f"No answer. Session {contract.name!r}: {rounds} of {rounds} rounds began. Cost epsilon ")
        assert code == 3
