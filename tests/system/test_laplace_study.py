"""Studies with Laplace noise between processes: by ``quietmean run``, and by ``quietmean join`` with a party that is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.ledger import Ledger
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.study import StudyTerms
from support.programs import module_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tool forks its parties, on Linux only")
# Of a Laplace law, one of 600 numbers is so many standard deviations off; noise is secret and differs from run to run.
FAR = 4.5
PARTIES, RECORDS = 6, 60
tool = module_of("tools", "joins")


def table(party: int) -> str:
    rng = np.random.default_rng((26, party))
    rows = zip(rng.choice(["f", "m"], RECORDS), rng.choice(["no", "yes"], RECORDS, p=[0.7, 0.3]), strict=True)
    return "sex,ill\n" + "".join(f"{sex},{ill}\n" for sex, ill in rows)


def study(protocol: str) -> StudyTerms:
    return StudyTerms.parse(
        {
            "name": "counted",
            "epsilon": 1.0,
            "delta": 1e-6,
            "protocol": protocol,
            "options": {"noise": "laplace"},
            "colluding": 1,
            "dropouts": 1 / PARTIES,
            "column": [{"name": "sex", "levels": ["f", "m"]}, {"name": "ill", "levels": ["no", "yes"]}],
            "statistic": [{"kind": "crosstab", "row": "sex", "column": "ill"}],
        }
    )


def truth(parties: list[int]) -> dict[str, int]:
    rows = [row for party in parties for row in table(party).splitlines()[1:]]
    return {f"{sex}:{ill}": sum(row == f"{sex},{ill}" for row in rows) for sex in "fm" for ill in ("no", "yes")}


def require_near(document: dict[str, Any], counted: list[int]) -> None:
    (answer,) = document["statistics"]
    found = {name: (answer["estimate"][name], answer["standard_error"][name]) for name in truth(counted)}
    for name, exact in truth(counted).items():
        estimate, error = found[name]
        assert 0.5 < error < 30
        assert abs(estimate - exact) <= FAR * error + 0.5, (name, estimate, exact, error)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["packed-sharing", "secagg", "central-dp"])
def test_a_table_by_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str) -> None:
    data = tmp_path / "data.csv"
    data.write_text(table(0) + "".join(table(party).partition("\n")[2] for party in range(1, PARTIES)))
    question = "crosstab(sex in {f, m}, ill in {no, yes})"
    options = ["--protocol", protocol, "--with", "noise=laplace", "--parties", str(PARTIES), "--out", str(tmp_path / "run")]
    main(["run", str(data), question, *options, "--json"])
    document = json.loads(capsys.readouterr().out)
    require_near(document, list(range(PARTIES)))
    assert document["epsilon"] <= 1.0
    assert document["over_curator"] < 1.2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("protocol", ["packed-sharing", "secagg", "secagg-plus", "central-dp"])
@pytest.mark.parametrize(
    "question", ["count(where=sex == 'f')", "count(ill in {no, yes}, level=yes)", "histogram(ill in {no, yes})"]
)
def test_a_count_by_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, question: str) -> None:
    """What a plan promises, a run gives: of one cell, of a level, of a table, by every protocol that draws Laplace noise."""
    data = tmp_path / "data.csv"
    data.write_text(table(0) + "".join(table(party).partition("\n")[2] for party in range(1, PARTIES)))
    options = ["--protocol", protocol, "--with", "noise=laplace", "--parties", str(PARTIES), "--out", str(tmp_path / "run")]
    main(["run", str(data), question, *([] if "ill" in question else ["sex in {f, m}"]), *options, "--json"])
    (answer,) = json.loads(capsys.readouterr().out)["statistics"]
    exact, cells = truth(list(range(PARTIES))), ("f:no", "f:yes") if "where" in question else ("f:yes", "m:yes")
    found, error = (answer[name]["yes"] if "histogram" in question else answer[name] for name in ("estimate", "standard_error"))
    assert 0.5 < error < 30
    assert abs(found - sum(exact[cell] for cell in cells)) <= FAR * error + 0.5


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["packed-sharing", "secagg"])
def test_a_party_that_is_killed_leaves_enough_shares(tmp_path: Path, tool: ModuleType, protocol: str) -> None:
    asked = study(protocol)
    plan: Plan = asked.plan(PARTIES)
    kill = tool.Kill(PARTIES - 1, 6)

    async def joined() -> Any:
        async with tool.Machine.ready() as machine:
            return await machine.study(tmp_path, study_text(asked), [table(party) for party in range(PARTIES)], kill=kill)

    end = asyncio.run(joined())
    stayed = range(PARTIES - 1)
    assert set(end.documents) >= set(stayed), end.failures
    receipt = Execution.load(end.receipts[0])
    assert isinstance(receipt, Execution)
    counted = np.flatnonzero(receipt.contributors()).tolist()
    assert len(counted) >= plan.protocol.minimum  # type: ignore[attr-defined]
    for party in stayed:
        require_near(end.documents[party], counted)
        with Ledger.open(tmp_path / f"site-{party}" / "data" / "quietmean" / "ledger") as ledger:
            (account,) = ledger.accounts()
            (entry,) = ledger.trace(account.name)
        promised = plan.charge
        assert (entry.charged.pure, entry.charged.rho, entry.charged.mu) == (promised.pure, promised.rho, promised.mu)
        assert entry.charged.pure <= 1.0
