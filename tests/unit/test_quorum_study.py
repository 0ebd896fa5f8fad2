"""A study that starts with those who are there: its file, its plans, its contract, and the ledger."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.privacy import Charge
from quietmean.studies.agreement.any_study import AnyStudy, any_of_tables, load_any, require_study, study_text
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.outcome.outcome import StudyOutcome
from quietmean.studies.party import Contract, Policy
from quietmean.studies.party.part import require_enough
from quietmean.studies.party.policy import PolicyRules
from quietmean.studies.party.session_contract import SessionContract, contract_for
from support.kinds import STUDY, Kind
from support.meeting import meet
from support.pages import commands
from support.refusals import refused, refused_rows

START = "2027-03-01T09:00:00Z"
COLUMN = {"name": "age", "low": 0, "high": 100}


def study(**fields: Any) -> StudyTerms:
    return require_study(agreed(STUDY, **fields))


def agreed(kind: Kind, **fields: Any) -> AnyStudy:
    """Of which four parties may start, unless ``fields`` say something else."""
    usual = {"protocol": "packed-sharing", "minimum": 4, "start_by": START, "epsilon": 1.0, "colluding": None}
    return any_of_tables(kind.with_fields(**usual | fields).tables, "the study")


KEYS = [Identity.generate().public_key for _ in range(30)]


def contract(of: AnyStudy, parties: int = 5) -> Contract | SessionContract:
    entries = [RosterEntry(f"p{place}", ("192.0.2.1", 7000 + place), KEYS[place]) for place in range(parties)]
    return contract_for("p0", (of, Roster(tuple(entries))))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"start_by": None}, "a minimum and no time when it starts.*start-by"),
        ({"start_by": 1_800_000_000}, "start_by must be a time with its offset from UTC"),
        ({"start_by": "2027-03-01T09:00:00"}, "start_by must be a time with its offset from UTC"),
        ({"start_by": "tomorrow"}, "start_by must be a time with its offset from UTC"),
        ({"minimum": 3.5}, "minimum must be a whole number"),
        ({"minimum": 1}, "minimum must be at least 2"),
        ({"minmum": 4}, "minmum is unknown .did you mean 'minimum'"),
        ({"start_at": START}, "start_at is unknown .did you mean 'start_by'"),
    ],
)
def test_impossible_fields_are_refused_in_one_sentence(kind: Kind, fields: dict[str, Any], sentence: str) -> None:
    refused(sentence, agreed, kind, **fields)


@refused_rows("what_could_have_two_results_is_refused")
def test_what_could_have_two_results_is_refused(kind: Kind, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        _ = contract(agreed(kind, **fields)).plans


@pytest.mark.parametrize("protocol", ["packed-sharing", "cordp-dme", "local-dp", "auto"])
@pytest.mark.parametrize("dropouts", [0.0, 0.2])
def test_every_number_of_parties_has_a_plan_that_keeps_the_contract(kind: Kind, protocol: str, dropouts: float) -> None:
    found = contract(agreed(kind, protocol=protocol, dropouts=dropouts, minimum=5), parties=7)
    plans = found.plans
    assert found.epsilon_a_priori <= 1.0 + 1e-9
    assert [plan.target.parties for plan in plans] == [7, 6, 5]
    assert {plan.target.colluding for plan in plans} == {1}
    assert {plan.protocol.name for plan in plans} == {plans[0].protocol.name}
    assert all(plan.epsilon_a_priori <= 1.0 + 1e-9 for plan in plans)
    for plan in plans:
        # No result from so few inputs that there could be two.
        assert getattr(plan.protocol, "minimum", 5) >= 5


def test_the_colluders_are_those_of_the_roster(kind: Kind) -> None:
    plans = contract(agreed(kind, minimum=17), parties=30).plans
    assert [plan.target.parties for plan in plans] == list(range(30, 16, -1))
    assert {plan.target.colluding for plan in plans} == {3}


def test_a_study_without_start_by_is_as_before() -> None:
    before = StudyTerms.parse({"column": [COLUMN], "protocol": "packed-sharing"})
    assert "start_by" not in before.tables()["study"]
    assert "minimum" not in before.tables()["study"]
    assert "start" not in before.context()
    assert before.choice(5).smaller == {}
    assert "quorum" not in contract(before).to_json()


def test_the_file_says_what_was_read(kind: Kind, tmp_path: Path) -> None:
    path, asked = tmp_path / "study.toml", agreed(kind)
    path.write_text(study_text(asked))
    assert load_any(path) == asked
    # A time in TOML is one, too; as is another spelling of the same moment.
    text, changed = re.subn('start_by = ".*"', "start_by = 2027-03-01T10:00:00+01:00", study_text(asked))
    assert changed == 1
    path.write_text(text)
    assert load_any(path) == asked


def test_the_contract_covers_the_start(kind: Kind) -> None:
    first = contract(agreed(kind))
    assert first.to_json()["quorum"]["minimum"] == 4
    assert sorted(first.to_json()["quorum"]["plans"]) == ["4", "5"]
    assert any("with those who are there if they are 4 or more" in text for name, text in first.lines() if name == "starts")
    for plan in first.plans:
        # Of a session one of its rounds.
        assert first.epsilon_a_priori >= plan.epsilon_a_priori
        assert first.charge.larger(plan.charge) == first.charge
    same = contract(agreed(kind, minimum=5))
    later = contract(agreed(kind, start_by="2027-03-01T09:00:01Z"))
    elsewhere = contract(agreed(kind, start_by="2027-03-01T10:00:00+01:00"))
    assert len({first.digest, same.digest, later.digest}) == 3
    assert elsewhere.plan.digest == first.plan.digest


def test_a_policy_counts_the_parties_that_may_start_it(kind: Kind) -> None:
    rules = Policy(PolicyRules(smallest_parties=5))
    assert rules.broken(contract(agreed(kind))) == ["smallest_parties: 4 parties may start it, at least 5 must"]
    assert rules.broken(contract(agreed(kind, minimum=5))) == []


def test_new_writes_such_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new = commands("take-part/quorum.md")[0]
    main(shlex.split(new)[1:])
    written = StudyTerms.load(tmp_path / "study.toml")
    assert (written.minimum, written.start_by) == (4, datetime(2027, 3, 1, 9, tzinfo=UTC))


def test_a_sealed_study_keeps_its_start(kind: Kind, tmp_path: Path) -> None:
    names = ("north", "south", "east", "west", "centre")
    sealed = meet(tmp_path, names, agreed(kind).tables()).seal()
    assert sealed.terms == agreed(kind).sealable()
    # The order in which they propose is sealed, the convener first.
    assert sealed.roster.name(sealed.roster.conveners[0]) == "north"
    found = contract_for("south", sealed)
    assert found.to_json()["quorum"]["minimum"] == 4


def test_a_result_that_another_set_could_have_too_is_none() -> None:
    target = study().choice(5).plan.target
    require_enough(target, cast(StudyOutcome, SimpleNamespace(parties_counted=4)))
    with pytest.raises(ProtocolFailure, match="It counts 3 parties and needs 4"):
        require_enough(target, cast(StudyOutcome, SimpleNamespace(parties_counted=3)))


# --- the ledger ------------------------------------------------------------------------------------------------------

NOW = datetime(2027, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    found = Ledger.open(tmp_path / "ledger", create=True)
    found.set_budget("visits", 2.0, 1e-5, when=NOW)
    return found


@pytest.mark.parametrize("refund", [True, False])
def test_what_never_started_is_given_back_once_and_for_good(book: Ledger, refund: bool) -> None:
    with book:
        book.reserve("visits", SpendingRequest("s", "ages", Charge(0.2, 1e-11, 1e-12), refund=refund), when=NOW)
        assert book.account("visits").charged.mu > 0
        assert book.give_back("s", when=NOW)
        assert book.give_back("s", when=NOW)
        assert book.account("visits").charged == Charge(0.0)
        # An older copy of the store would go on: its data would leave without being charged.
        refused("was given back", book.bind, "s", b"attempt")


def test_what_may_have_left_is_not_given_back(book: Ledger) -> None:
    with book:
        book.reserve("visits", SpendingRequest("s", "ages", Charge(0.2)), when=NOW)
        book.bind("s", b"attempt 1")
        book.bind("s", b"attempt 1")
        refused("another", book.bind, "s", b"attempt 2")
        assert not book.give_back("s", when=NOW)
        assert book.account("visits").charged.mu >= 0.2
        refused("Reserve it first", book.give_back, "other", when=NOW)
