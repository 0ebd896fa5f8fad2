"""Every page that people see is readable: of all kinds of statistics, on data that people have, certificates, tables, the desk.

Each page is looked at on a screen and a telephone, in light and dark: nothing that axe-core knows, no page that is wider than the
screen, no text of a figure that is cut or lies on another, no link that leads nowhere.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.answers import write_privacy_page, write_report
from quietmean.core.domain import PrivacyUnit
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.node import Identity
from quietmean.privacy import Charge
from quietmean.report import ReportFacts, write_certificate_report
from quietmean.statistics import Column, Columns
from quietmean.studies import StudyOutcome
from quietmean.studies.outcome.tables import write_tables
from quietmean.studies.party.audit import AuditLog, Auditor, Event
from quietmean.studies.party.session_contract import SessionContract, contract_for
from support.browsers import looked_at
from support.committee_study import CommitteeStudy
from support.desks import entered, running
from support.meeting import AGES, meet
from support.outcomes import COLUMNS, DELTA, EVERY_KIND, ODD, finished, odd_records, records_of, run_of, session_receipt, truth_of
from support.site_policy import write_policy

PAGES = ("report", "privacy", "certificate", "tables")
ORIGIN = {"quietmean": "0.1.0", "finished": "2026-03-01T12:00:00.000+00:00", "study": {"study": "Every kind"}}
# Dates, whole numbers, a level with signs that HTML has, and as many levels as a table of regions has.
WIDE = Columns(
    [
        *COLUMNS,
        Column.model_validate({"name": "admitted", "low": "2017-01-01", "high": "2019-12-31"}),
        Column(name="visits", low=0, high=80, whole=True),
        Column(name="region", levels=tuple(f"region {place:02d} of the <North> & South" for place in range(30))),
    ]
)
MORE = (
    *("histogram(admitted, bins=12)", "cdf(admitted, bins=8)", "quantiles(admitted)", "group-means(admitted, by=arm)"),
    *("histogram(visits)", "histogram(x)", "quantiles(visits)", "histogram(region)", "group-means(x, by=region)"),
)
# Noise of one party: hardly any, some, and so much that it hides all.
NOISES = (0.05, 5.0, 1e4)


def wide_records() -> np.ndarray[Any, np.dtype[np.float64]]:
    rng, rows = np.random.default_rng(2), records_of()
    own = [rng.integers(100, 1000, len(rows)), np.minimum(rng.geometric(0.2, len(rows)), 80), rng.integers(0, 30, len(rows))]
    return np.column_stack([rows, *own]).astype(np.float64)


def pages_of(folder: Path, outcome: StudyOutcome, records: Any) -> list[str]:
    """A report, a privacy page, a certificate, and tables."""
    names = [f"University Hospital {town}" for town in ("Aachen", "Bern", "Cork", "Dresden", "Essen", "Freiburg", "Graz", "Hull")]
    names = names[: outcome.execution.parties]
    places = {name: folder / f"{name}.html" for name in PAGES}
    took = {"receipt": folder / "study.receipt.json", "messages": 100, "bytes": 10_000, "seconds": 7.0}
    run = run_of("Every kind", outcome, names, origin=ORIGIN, truth=truth_of(outcome, records), **took)
    write_report(places["report"], run)
    write_privacy_page(places["privacy"], run)
    stated = ReportFacts.of_receipt(outcome.receipt({**ORIGIN, "names": names}), "study.receipt")
    write_certificate_report(outcome.execution, places["certificate"], delta=DELTA, size=1, stated=stated)
    write_tables(outcome.to_json(), places["tables"])
    return [place.resolve().as_uri() for place in places.values()]


@pytest.mark.parametrize("noise", NOISES)
def test_every_kind_of_page_is_readable(noise: float, tmp_path: Path, browser: Any) -> None:
    """With dates, whole numbers, thirty regions, and what noise hides."""
    records = wide_records()
    outcome = finished(*EVERY_KIND, *MORE, noise=noise, columns=WIDE, records=records)
    assert looked_at(browser, pages_of(tmp_path, outcome, records)) == []


@pytest.mark.parametrize("noise", NOISES)
def test_pages_of_odd_names_and_few_values_are_readable(noise: float, tmp_path: Path, browser: Any) -> None:
    """With days, a column that is mostly missing, a level that nobody has, and names that a page could break at."""
    records = odd_records()
    outcome = finished(*EVERY_KIND, noise=noise, columns=ODD, records=records)
    assert looked_at(browser, pages_of(tmp_path, outcome, records)) == []


def test_every_page_of_the_desk_is_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any) -> None:
    monkeypatch.chdir(tmp_path)
    study = {**AGES["study"], "name": "Ages of the wards", "records": 3000}
    columns = [*AGES["column"], {"name": "ward", "levels": ["a", "b"]}]
    (tmp_path / "ages.sealed").write_bytes(
        meet(tmp_path, tables={**AGES, "study": study, "column": columns}).seal().signed.to_file()
    )
    rows = "".join(f"{20 + place},{'a' if place % 3 else ''}\n" for place in range(40))
    (tmp_path / "wards.csv").write_text(f'age,ward\n312.75,a\n{rows}"61,234",c\n')
    write_policy()
    for noise in NOISES[1:]:
        finished(*EVERY_KIND, noise=noise).save_receipt(tmp_path / f"noise {noise:g}.receipt.json", ORIGIN)
    when, outcome = datetime(2026, 3, 1, tzinfo=UTC), finished("mean(x)", noise=3.0)
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        book.set_budget("patients", 20.0, 1e-5, when=when, unit=PrivacyUnit.RECORD)
        book.reserve(
            "patients", SpendingRequest("s", "<Study>", Charge.promised(outcome.a_priori), unit=PrivacyUnit.RECORD), when=when
        )
    with running("--data", "wards.csv", "--ledger", "ledger") as desk:
        cookie = dict(zip(("name", "value"), entered(desk), strict=True)) | {"domain": "127.0.0.1", "path": "/"}
        state = {"cookies": [cookie], "origins": []}
        pages = ["", "study/ages.sealed", "study/ages.sealed/data", "result/noise 5", "result/noise 10000"]
        pages += ["ledger", "audit", "board", "nothing", "login"]
        found = looked_at(browser, [f"http://127.0.0.1:{desk.port}/{page}" for page in pages], storage_state=state)
    assert found == []


SESSION = {"session": {"name": "rounds", "dimension": 3, "rounds": 2, "epsilon": 2.0, "delta": 1e-6, "protocol": "cordp-dme"}}


@pytest.mark.parametrize("party", ["m1", "c1", "south"])
def test_the_desk_of_a_committee_and_of_a_session_is_readable(
    party: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    """Of a member, of a contributor, and of a party of a session; with what each can sign and start."""
    monkeypatch.chdir(tmp_path)
    data, key = "wages.csv", f"{party}.key"
    if party == "south":
        sealed = "rounds.sealed"
        session = meet(tmp_path, tables=SESSION).seal()
        (tmp_path / sealed).write_bytes(session.signed.to_file())
        head = Auditor(AuditLog(tmp_path / "audit.jsonl"), Identity.generate(), party, "rounds", session.digest).write(
            Event.ENDED
        )
        contract = contract_for(party, session)
        assert isinstance(contract, SessionContract)
        receipt = session_receipt(contract, (2, 1, 0), {"contract": session.digest, "audit": head.to_json()})
        (tmp_path / "rounds.receipt.json").write_text(json.dumps(receipt))
    else:
        sealed = CommitteeStudy(tmp_path, addresses={f"m{place}": f"127.0.0.1:{7000 + place}" for place in range(1, 5)}).path.name
    (tmp_path / data).write_text("pay\n512\n")
    Identity.generate().save(tmp_path / "owner.key", b"open sesame")
    write_policy(audit={"log": str(tmp_path / "audit.jsonl")})
    here = ["--owner-key", "owner.key", "--data", data, *(["--key", key] if (tmp_path / key).exists() else [])]
    with running(*here, party=party) as desk:
        cookie = dict(zip(("name", "value"), entered(desk), strict=True)) | {"domain": "127.0.0.1", "path": "/"}
        shown = ["", f"study/{sealed}", "board", "ledger", "audit", *(["result/rounds"] if party == "south" else [])]
        pages = [f"http://127.0.0.1:{desk.port}/{page}" for page in shown]
        assert looked_at(browser, pages, storage_state={"cookies": [cookie], "origins": []}) == []
