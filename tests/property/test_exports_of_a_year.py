"""Exports of one hospital over a year, and of two hospitals: how many budgets there are in the end."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import Ledger
from quietmean.planning.plan import Plan
from quietmean.studies import StudyTerms
from quietmean.studies.data import account_name
from quietmean.studies.party.accounts import People, records_for
from quietmean.studies.party.payment import StudyCost, payer_for
from quietmean.studies.party.policy import Policy

STUDY = StudyTerms.parse(
    {
        "column": [{"name": "sbp", "low": 0, "high": 300, "missing": "indicator"}, {"name": "sex", "levels": ["f", "m"]}],
        "statistic": [{"kind": "mean", "column": "sbp"}],
        "epsilon": 0.05,
        "protocol": "local-dp",
    }
)
MONTHS, SEQUENCES, AT_A_TIME = 4, 200, 20


@pytest.fixture(scope="module")
def plan() -> Plan:
    return STUDY.plan(3)


@dataclass
class Hospital:
    """Its patients so far, and what an export of one month looks like."""

    folder: Path
    rng: np.random.Generator
    identified: bool
    prefix: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    exports: int = 0
    column: str = ""

    def grow(self, count: int) -> None:
        for _ in range(count):
            number = len(self.rows)
            self.rows.append(
                {
                    "pid": f"{self.prefix}{number:05d}",
                    "sbp": int(self.rng.integers(90, 200)),
                    "sex": "fm"[int(self.rng.integers(2))],
                    "weight": round(float(self.rng.normal(75, 12)), 2),
                    "note": f"{int(self.rng.integers(10**9))}",
                }
            )

    def export(self, kind: str) -> str:
        """Of the month: sorted in another way, with some cells emptied, under other names of columns, as another kind of file."""
        self.exports += 1
        rows = [dict(row) for row in self.rows]
        self.rng.shuffle(rows)
        if self.rng.random() < 0.5:
            rows.sort(key=lambda row: (row["sbp"], row["note"]))
        for row in rows:
            if self.rng.random() < 0.1:
                row[["sbp", "weight", "note"][int(self.rng.integers(3))]] = None
        called = {name: name.upper() if self.rng.random() < 0.5 else name for name in ("pid", "sbp")}
        called["pid"] = self.column or called["pid"]
        if not self.identified:
            rows = [{name: row[name] for name in row if name != "pid"} for row in rows]
        rows = [{called.get(name, name): value for name, value in row.items()} for row in rows]
        stem = f"{self.prefix}{'wards' if self.rng.random() < 0.3 else f'export_{self.exports:02d}'}"
        path = self.folder / f"{stem}.{kind}"
        frame = pl.DataFrame(rows, infer_schema_length=None)
        if kind == "csv":
            frame.write_csv(path)
        elif kind == "parquet":
            frame.write_parquet(path)
        else:
            path.unlink(missing_ok=True)
            with sqlite3.connect(path) as base:
                base.execute(f"CREATE TABLE visits ({', '.join(frame.columns)})")
                base.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * frame.width)})", frame.rows())  # noqa: S608
            base.close()
        person = f'person = "{called["pid"]}"\nrows_per_person = 1\n' if self.identified else ""
        path.with_name(f"{stem}.format.toml").write_text(f'[mapping]\n{person}[mapping.columns]\nsbp = "{called["sbp"]}"\n')
        return str(path)


def charge(plan: Plan, ledger: Path, home: Path, data: str, study: str, told: list[str], **options: Any) -> str:
    """As contribute does it: the account that was charged. Raises :class:`InputError` where nothing is."""
    payer = payer_for(
        Policy.load(options.get("policy")), PrivacyUnit.RECORD, account_name(data), PaymentOptions(**options), told.append
    )
    assert payer is not None
    records = records_for(STUDY, data, lambda sentence: None)
    cost = StudyCost("visits", plan)
    payer = payer.of(records.in_order, People(records, data, home, told.append), cost).settled_people(cost, study)
    told += payer.owner_notes
    return payer.reserve(cost, lambda: study, content=study.encode()).account


def year(plan: Plan, folder: Path, seed: int, told: list[str]) -> tuple[Path, Hospital]:
    """One hospital: whatever its exports are called, a person names the account again where that is asked for."""
    rng = np.random.default_rng(seed)
    hospital = Hospital(folder, rng, identified=bool(rng.random() < 0.5), prefix="n")
    hospital.grow(60)
    ledger = folder / "data" / "ledger"
    for month in range(MONTHS):
        kinds = ["csv", "sqlite", *(["parquet"] if seed % 10 == 0 else [])]
        hospital.grow(int(rng.integers(0, 25)))
        data = hospital.export(kinds[int(rng.integers(len(kinds)))])
        study = f"{seed}-{month}"
        with suppress(InputError):
            charge(plan, ledger, folder, data, study, told)
            continue
        (first,) = [each.name for each in accounts(ledger)]
        # By the identifier, or by rows of which nearly all differ, these people are recognised.
        named = rf"People of these data are in account '{first}'.*--account {first} for .*--new-account {account_name(data)} for"
        with pytest.raises(InputError, match=named):
            charge(plan, ledger, folder, data, study, told)
        charge(plan, ledger, folder, data, study, told, account=first)
    return ledger, hospital


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEQUENCES, AT_A_TIME))
def test_exports_of_one_hospital_are_one_budget_and_of_two_two(
    first: int, tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + AT_A_TIME):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda folder=folder: folder / "data")
        told: list[str] = []
        ledger, hospital = year(plan, folder, seed, told)
        with Ledger.open(ledger) as book:
            (account,) = book.accounts()
        assert len(account.entries) == MONTHS
        key, made = told
        assert "people.key is made" in key
        assert "is made in" in made
        other = Hospital(folder, hospital.rng, hospital.identified, prefix="s")
        other.grow(60)
        data = other.export("csv")
        with pytest.raises(InputError, match=r"may be the same people as in .*--new-account"):
            charge(plan, ledger, folder, data, f"{seed} other", told)
        charge(plan, ledger, folder, data, f"{seed} other", told, new_account="south")
        with Ledger.open(ledger) as book:
            assert len(book.accounts()) == 2
        # Nothing was told of the other hospital's people but that their account was made.
        assert [sentence for sentence in told[2:] if "is made in" not in sentence] == []


def test_columns_with_few_values_raise_no_alarm(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda: tmp_path / "data")
    told: list[str] = []
    for seed, options in ((0, {}), (1, {"new_account": "south"})):
        rng = np.random.default_rng(seed)
        path = tmp_path / f"few{seed}.csv"
        path.write_text("sbp,sex\n" + "\n".join(f"{rng.integers(5)},{'fm'[rng.integers(2)]}" for _ in range(300)) + "\n")
        if options:
            with pytest.raises(InputError, match="may be the same people"):
                charge(plan, tmp_path / "data" / "ledger", tmp_path, str(path), f"few {seed}", told)
        charge(plan, tmp_path / "data" / "ledger", tmp_path, str(path), f"few {seed}", told, **options)
    assert [sentence for sentence in told if "too" in sentence] == []


def test_new_people_get_an_account_beside_and_known_ones_pay_in_theirs(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda: tmp_path / "data")
    ledger, told = tmp_path / "data" / "ledger", list[str]()
    hospital = Hospital(tmp_path, np.random.default_rng(3), identified=True, prefix="n", column="pid")
    hospital.grow(50)
    charge(plan, ledger, tmp_path, hospital.export("csv"), "first", told)
    (name,) = [each.name for each in accounts(ledger)]
    everybody, hospital.rows = hospital.rows, []
    hospital.grow(80)
    hospital.rows = [row for row in hospital.rows if row["pid"] >= "n00050"]
    week = hospital.export("csv")
    for _ in range(2):
        # The same study again, as after a crash, stays where it is.
        assert charge(plan, ledger, tmp_path, week, "week", told, account=name, new_people=True) == f"{name}/2"
    assert {each.name: len(each.entries) for each in accounts(ledger)} == {name: 1, f"{name}/2": 1}
    with Ledger.open(ledger) as book:
        assert '"checked": true' in book.claims(f"{name}/2")
    assert "checked: people who are known pay in the account that knows them, too" in told[-1]
    # One of them is enough, however large both are.
    hospital.rows = [*hospital.rows[-3:], everybody[0]]
    returning = hospital.export("csv")
    policy = tmp_path / "policy.toml"
    policy.write_text('[policy]\npeople_in_two_accounts = "refuse"\n')
    with pytest.raises(
        InputError, match=f"account '{name}', '{name}/2' has persons of these data, and the policy refuses people_in"
    ):
        charge(plan, ledger, tmp_path, returning, "third", told, account=name, new_people=True, policy=policy)
    assert charge(plan, ledger, tmp_path, returning, "third", told, account=name, new_people=True) == f"{name}/3"
    assert {each.name: len(each.entries) for each in accounts(ledger)} == {name: 2, f"{name}/2": 2, f"{name}/3": 1}
    # Each pays for what it was in, once.
    assert len({each.charged_mu for each in accounts(ledger) if each.name != f"{name}/3"}) == 1
    with pytest.raises(InputError, match="--new-people stands without --account"):
        charge(plan, ledger, tmp_path, week, "wrong", told, new_people=True)
    with pytest.raises(InputError, match="--account cannot go with --new-account"):
        charge(plan, ledger, tmp_path, week, "wrong", told, account=name, new_account="other")
    # The same persons by another column, or without the key: nothing proves who is new.
    hospital.column = "PID"
    charge(plan, ledger, tmp_path, hospital.export("csv"), "fourth", told, account=name, new_people=True)
    with Ledger.open(ledger) as book:
        assert '"checked": false' in book.claims(f"{name}/4")
    assert "(not checked: nothing proves it)" in told[-1]


def test_who_has_no_room_takes_part_without_a_value_and_nothing_is_refused(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quietmean.studies.party.policy.data_folder", lambda: tmp_path / "data")
    ledger, told = tmp_path / "data" / "ledger", list[str]()
    ledger.parent.mkdir()
    hospital = Hospital(tmp_path, np.random.default_rng(3), identified=True, prefix="n", column="pid")
    hospital.grow(9)
    # A budget of exactly the study.
    with Ledger.open(ledger, create=True) as book:
        book.set_budget("wards", STUDY.epsilon, STUDY.delta, when=datetime.now(UTC))
    charge(plan, ledger, tmp_path, hospital.export("csv"), "first", told, account="wards")
    (account,) = accounts(ledger)
    assert (account.unit, account.remaining_epsilon) == (PrivacyUnit.PERSON, 0.0)
    hospital.grow(2)
    for name, options in {"wards": {}, "wards/2": {"new_people": True}}.items():
        told.clear()
        assert charge(plan, ledger, tmp_path, hospital.export("csv"), name, told, account="wards", **options) == name
        # Whoever was not in the first study has room in the first account, and none in the second one: they were in the first.
        silent = 9 if name == "wards" else 11
        assert f"{silent} persons take part without a value, for an account that has them has no room" in told
    assert all(account.within(account.budget) for account in accounts(ledger))


def accounts(ledger: Path) -> tuple[Any, ...]:
    with Ledger.open(ledger) as book:
        return book.accounts()
