"""What other programs may rely on: every protocol's receipt and every statistic's answer are as the schemas say.

Another library decides. Results of real runs are held against them in the tests of ``run`` and ``join``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.cli.main import main
from quietmean.core.codec import to_plain
from quietmean.protocols import configure, registry
from quietmean.testing.strategies import executions
from support.json_documents import faults
from support.pages import commands

CERTIFY = {"colluding": 2, "delta": 1e-6, "epsilon": 1.0}
WITH_EXECUTIONS = sorted(name for name, kind in registry().items() if kind.TRAITS.has_transcript)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WITH_EXECUTIONS)
def test_the_executions_of_every_protocol(name: str) -> None:
    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        document = to_plain({**data.draw(executions(name)).to_json(), "certify": CERTIFY})
        assert faults("receipt", document) == []
        assert faults("receipt", document | {"nonsense": 1}) != []
        assert faults("receipt", document | {"parties": "five"}) != []
        assert faults("receipt", {key: value for key, value in document.items() if key != "online"}) != []

    holds()


def test_a_parameter_outside_its_range_is_a_fault() -> None:
    document = configure("local-dp").describe() | {"sigma": 0.5}
    common = {"protocol": "local-dp", "parties": 2, "rounds": 0, "online": [[True, True]], "sensitivity": 1.0}
    assert faults("receipt", common | document | {"certify": CERTIFY}) == []
    assert any("sigma" in fault for fault in faults("receipt", common | document | {"sigma": -1.0, "certify": CERTIFY}))


@pytest.mark.parametrize("place", [1, 2])
def test_the_commands_of_the_page(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *written = commands("analyse/results.md")[place].split()
    main(written)
    main(written[:2])
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert json.loads(Path(written[-1]).read_text()) == printed
    assert printed["$schema"].endswith("2020-12/schema")
