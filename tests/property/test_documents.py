"""What the test kit makes of declared fields: every value that a protocol or statistic takes survives its own JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from quietmean import statistics
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError
from quietmean.core.schema import Configured, parameter
from quietmean.protocols import Mechanism, get_protocol, registry
from quietmean.testing.strategies import PARAMETERS, documents
from support.effort import examples

PARTIES = 8
# What is refused since fields do not fit together is drawn again.
MANY = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much])


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", registry())
def test_every_protocol_survives_its_json(name: str) -> None:
    protocol, drawn = get_protocol(name), set[Mechanism]()

    @MANY
    @given(PARAMETERS[name](PARTIES) if name in PARAMETERS else documents(protocol, PARTIES))
    def survives(raw: dict[str, Any]) -> None:
        try:
            value = protocol.read(raw).resolved(PARTIES)
        except InputError:
            reject()
        again = protocol.read(json.loads(canonical_json(value.describe()))).resolved(PARTIES)
        assert again == value
        assert again.describe() == value.describe()
        drawn.add(value)

    survives()
    assert len(drawn) > 10


@pytest.mark.sampled(15)
@pytest.mark.parametrize("name", statistics.registry())
def test_every_statistic_survives_its_json_and_its_text(name: str) -> None:
    @MANY
    @given(documents(statistics.get_statistic(name)))
    def survives(raw: dict[str, Any]) -> None:
        value = statistics.parse_statistic({"kind": name, **raw})
        assert statistics.parse_statistic(json.loads(canonical_json(value.describe()))) == value
        assert statistics.parse_statistic(statistics.read_text(value.text)) == replace(value, share=1.0)

    survives()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ranges(Configured):
    """Fields that depend on nothing else: nothing that is drawn is refused."""

    count: int = parameter(help="a count", at_least=1, remedy="choose 1 or more")
    few: int = parameter(3, help="a few", above=0, below=5, remedy="choose 1..4")
    share: float = parameter(0.5, help="a share", above=0, below=1, remedy="choose 0 < share < 1")
    sigma: float = parameter(help="a deviation", at_least=0, remedy="choose >= 0")
    low: float = parameter(-5.0, help="something low", at_most=-3, remedy="choose <= -3")
    limit: float | None = parameter(None, help="any number or none")
    step: float = parameter(help="a step", required=False, auto=True, above=0, remedy="choose > 0")
    kind: str = parameter("plain", help="a kind", choices=("plain", "fancy"))
    loud: bool = parameter(False, help="loud")
    pairs: tuple[int, ...] = parameter((), help="pairs", read=tuple, write=list)


@given(documents(Ranges, parties=4))
def test_ranges_are_kept(raw: dict[str, Any]) -> None:
    assert {"count", "sigma"} <= set(raw)
    assert "pairs" not in raw
    assert 1 <= raw["count"] <= 4
    written = {name: value for name, value in raw.items() if value is not None}
    assert Ranges.read(raw).describe() | written == Ranges.read(raw).describe()


def test_every_choice_is_drawn() -> None:
    seen: dict[str, set[Any]] = {"few": set(), "kind": set(), "loud": set(), "step": set()}

    @settings(max_examples=examples(200))
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        raw = data.draw(documents(Ranges))
        for name, values in seen.items():
            values.add(raw.get(name))

    collect()
    assert seen["few"] == {None, 1, 2, 3, 4}
    assert seen["kind"] == {None, "plain", "fancy"}
    assert seen["loud"] == {None, True, False}
    assert {None, "auto"} < seen["step"]


def test_what_cannot_be_derived_is_named() -> None:
    @dataclass(frozen=True, kw_only=True, eq=False, repr=False)
    class Odd(Configured):
        table: Any = parameter(help="a table", read=lambda raw: raw)

    with pytest.raises(LookupError, match="'table' reads JSON in its own way"):
        documents(Odd)
