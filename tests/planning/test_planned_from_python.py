"""A study that is planned from Python has the figures of the command, a readable face, and warnings at the user's line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pydoc
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.cli import main
from quietmean.core import tables
from quietmean.core.blocking import blocking
from quietmean.core.keywords import python_call, warn_caller
from quietmean.protocols import registry
from quietmean.protocols.mechanism import is_private

COLUMNS: dict[str, Any] = {"age": (0, 110), "smoker": bool}
# What is known or wanted of a study, as keywords and as options.
WANTED: list[dict[str, Any]] = [
    {},
    {"records": 2000},
    {"records": 2000, "width": 2.0},
    {"records": 2000, "power": 0.8},
    {"records": 2000, "width": 2.0, "power": 0.8},
]


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: "-".join(wanted) or "nothing")
def test_python_has_the_figures_of_the_command(
    wanted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    study = qm.Study(COLUMNS, ["mean(age)", "proportion(smoker)"], epsilon=2.0, delta=1e-6)
    study.save("study.toml")
    options = [word for name, value in wanted.items() for word in (f"--{name}", str(value))]
    with contextlib.suppress(SystemExit):
        main.main(["plan", "--study", "study.toml", "--parties", "10", *options, "--json"])
    document = json.loads(capsys.readouterr().out)
    planned = study.plan(10, **wanted)
    assert planned.plan.digest == document["digest"]
    assert planned.epsilon_a_priori == document["epsilon_a_priori"]
    assert [needed.to_json() for needed in planned.needed] == document["needed"]
    expected = [(row["name"], [row["noise.width.low"], row["noise.width.high"]]) for row in planned.rows()]
    assert expected == [(each["name"], each["width_noise"]) for each in document["expected"]]
    shown = repr(planned)
    assert all(row["name"] in shown for row in planned.rows())
    assert all(needed.sentence in shown for needed in planned.needed)
    assert planned._repr_html_().count("<tr>") == (len(planned.rows()) + 1 if wanted else 0)
    assert ("Give records" in shown) is (not wanted)


@pytest.mark.parametrize("wanted", [{"records": 0}, {"width": 0.0}, {"power": 1.0}], ids=lambda wanted: next(iter(wanted)))
def test_what_no_study_reaches_is_refused_in_keywords(wanted: dict[str, Any]) -> None:
    with pytest.raises(qm.InputError, match=next(iter(wanted))) as refused:
        qm.Study(COLUMNS, epsilon=2.0, delta=1e-6).plan(10, **wanted)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(registry()))
def test_a_plan_shows_no_numbers_of_its_protocol(name: str) -> None:
    protocol = registry()[name]()
    unit_vectors = 2.0 if name == "priv-unit-g" else None
    plan = qm.plan(
        parties=6, epsilon=1.0, delta=1e-6, protocol=protocol, no_privacy=not is_private(protocol), sensitivity=unit_vectors
    )
    assert name in repr(plan)
    assert "=" not in repr(plan), "a parameter of the protocol"
    assert ("no privacy" in repr(plan)) is not is_private(protocol)


@python_call
def _warn_deep() -> None:
    def work() -> None:
        warn_caller("look here")

    async def in_a_thread() -> None:
        await asyncio.to_thread(work)

    blocking(in_a_thread())


@python_call
async def _warn_later() -> None:
    await asyncio.to_thread(warn_caller, "look here")


def test_a_warning_is_at_the_line_of_the_caller() -> None:
    async def in_a_loop() -> None:
        _warn_deep()
        await _warn_later()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _warn_deep()
        asyncio.run(in_a_loop())
        qm.plan(parties=6, epsilon=20.0, delta=1e-6)
    lines = Path(__file__).read_text().splitlines()
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name] * 4
    said = [lines[each.lineno - 1].strip() for each in caught]
    assert said == ["_warn_deep()", "_warn_deep()", "await _warn_later()", "qm.plan(parties=6, epsilon=20.0, delta=1e-6)"]


@pytest.mark.parametrize(
    ("there", "library"), [({"polars", "pandas"}, "polars"), ({"pandas"}, "pandas"), ({"polars"}, "polars"), (set(), "")]
)
def test_a_frame_is_of_the_library_that_is_there(there: set[str], library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(module: str, extra: str, purpose: str) -> Any:
        if module not in there:
            raise qm.InputError(f"{purpose} needs the extra {extra!r}")
        return import_module(module)

    monkeypatch.setattr(tables, "is_installed", lambda *modules: {*modules} <= there)
    monkeypatch.setattr(tables, "import_extra", imported)
    rows = qm.rank(qm.Target(parties=4, epsilon=1.0, delta=1e-6), ["local-dp"])
    if not library:
        with pytest.raises(qm.InputError, match="needs the extra 'tables'"):
            rows.to_frame()
        return
    frame = rows.to_frame()
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == list(rows.rows()[0])
    without_rows = tables.frame_of([], {"a": str, "b": float})
    assert list(without_rows.columns) == ["a", "b"]


def test_help_shows_public_names() -> None:
    for called in (qm.Study, qm.join, qm.contract, qm.contribute, qm.plan):
        shown = pydoc.plain(pydoc.render_doc(called))
        assert "rooms." not in shown, called
        assert "epsilon" in shown or "study" in shown
