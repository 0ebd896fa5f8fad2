"""Whose people these are: a person at a terminal names an account by a number; without one nothing is charged."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.identity import AtTerminal
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import Ledger
from quietmean.planning.plan import Plan
from quietmean.studies import StudyTerms
from quietmean.studies.party import NobodyToAsk, Observers, Person, payer_for
from quietmean.studies.party.accounts import left_in
from quietmean.studies.party.payment import Payer, StudyCost
from quietmean.studies.party.policy import Policy

STUDY = {"column": [{"name": "age", "low": 0, "high": 100}], "epsilon": 0.05, "protocol": "local-dp"}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return StudyTerms.parse(STUDY).plan(3)


@pytest.fixture
def ledger(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With accounts of two data sets."""
    monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda: tmp_path)
    for name in ("wards", "outpatients"):
        payer(name, new_account=name).reserve(StudyCost(name, plan), partial(str, name), content=name.encode())
    return tmp_path / "ledger"


def payer(data: str, **options: Any) -> Payer:
    made = payer_for(Policy.load(None), PrivacyUnit.RECORD, data, PaymentOptions(**options))
    assert made is not None
    return made


def asked(answers: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> Person:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{answer}\n" for answer in answers)))
    return Person(AtTerminal(), print, print, lambda *ignored: None, Observers(print))


def charge(person: Person, plan: Plan, study: str, approval: Any = None, **options: Any) -> str:
    own = payer("wards_02", **options)
    return person.paid(
        own, approval or {}, lambda each: each.reserve(StudyCost("visits", plan), lambda: study, content=study.encode())
    ).account


def names(ledger: Path) -> dict[str, int]:
    with Ledger.open(ledger) as book:
        return {each.name: len(each.entries) for each in book.accounts()}


def test_nobody_is_asked_for_a_yes_that_no_ledger_can_pay(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ledger .* does not exist. Check the path, or make it with"):
        left_in(tmp_path / "ledger", "wards", None)
    assert left_in(tmp_path / "ledger", "wards", 5.0) == ", of 5 in a new budget 'wards'"


def test_a_person_chooses_by_number(
    ledger: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert charge(asked(["1"], monkeypatch), plan, "a") == "outpatients"
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "Whose people are these? These may be the same people as in 'outpatients', 'wards'."
    assert [line.split(None, 1)[0] for line in lines[1:4]] == ["1", "2", "0"]
    assert names(ledger) == {"outpatients": 2, "wards": 1}
    assert charge(asked(["0"], monkeypatch), plan, "b") == "wards_02"
    assert names(ledger) == {"outpatients": 2, "wards": 1, "wards_02": 1}
    # It is there now, and nothing is asked.
    assert charge(asked([], monkeypatch), plan, "c") == "wards_02"


def test_after_a_stop_the_account_that_was_chosen_goes_on(ledger: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    assert charge(asked(["2"], monkeypatch), plan, "a") == "wards"
    assert charge(asked([], monkeypatch), plan, "a") == "wards"
    assert names(ledger) == {"outpatients": 1, "wards": 2}


@pytest.mark.parametrize("answer", ["", "3", "-1", "wards", "no", "²", "1" * 5000])
def test_any_other_answer_charges_nothing(answer: str, ledger: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is asked again; who leaves then has paid nothing.
    with pytest.raises(KeyboardInterrupt):
        charge(asked([answer], monkeypatch), plan, "a")
    assert names(ledger) == {"outpatients": 1, "wards": 1}
    assert charge(asked([answer, "1"], monkeypatch), plan, "a") == "outpatients"


def test_nobody_is_asked_without_a_terminal_or_for_an_approval_that_names_an_account(
    ledger: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = Person(NobodyToAsk(), print, print, lambda *ignored: None, Observers(print))
    signed = {"approval": {"approvals": ["signed"]}}
    for person, approval in ((nobody, None), (asked(["1"], monkeypatch), signed)):
        with pytest.raises(InputError, match="account 'wards_02' does not exist"):
            charge(person, plan, "a", approval)
    assert names(ledger) == {"outpatients": 1, "wards": 1}


def test_nothing_is_drawn_over_the_question(ledger: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    @contextmanager
    def pause() -> Iterator[None]:
        order.append("paused")
        yield
        order.append("drawn")

    def answer(question: str) -> str:
        order.append("asked")
        return "1"

    person = asked(["1"], monkeypatch)
    monkeypatch.setattr("quietmean.cli.identity._answer", answer)
    charge(Person(AtTerminal(pause), print, print, person.tell_owner, person.observers), plan, "a")
    assert order == ["paused", "asked", "drawn"]
