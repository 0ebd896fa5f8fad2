"""The gallery keeps what is not made anew, and counts what is on it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from quietmean_reproduction import registry
from quietmean_reproduction.summary import write_summary

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_gallery

    return make_gallery


def made(directory: Path, name: str, verdicts: list[bool | None], own: list[bool | None] | None = None) -> Path:
    """A directory with one figure."""
    directory.mkdir()
    common = {"claim": "c", "paper": None, "ours": 1.0, "ratio": None, "unit": "", "why": "a | b"}
    claims = [*({**common, "agrees": one} for one in verdicts), *({**common, "agrees": one, "own": True} for one in own or [])]
    figure = {"name": name, "title": "a title", "paper": "A paper", "caption": "", "effort": "quick", "claims": claims}
    (directory / f"{name}.json").write_text(json.dumps(figure))
    (directory / f"{name}.png").write_bytes(b"picture")
    write_summary(directory)
    return directory


def test_figures_that_are_not_made_anew_stay(tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    tool.main(made(tmp_path / "one", "z-1", [True, False]))
    tool.main(made(tmp_path / "two", "a-1", [None], [True, True, False]))
    page = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    checks = "3 checks of our own: 2 agree, 1 differ, 0 without a verdict"
    assert f"2 figures. 3 statements of the papers: 1 agree, 1 differ, 1 without a verdict. {checks}" in page
    assert page.index("## a-1") < page.index("## z-1")
    tool.main(made(tmp_path / "three", "z-1", [True, True]))
    page = (tmp_path / "gallery.md").read_text(encoding="utf-8")
    assert f"2 figures. 3 statements of the papers: 2 agree, 0 differ, 1 without a verdict. {checks}" in page
    assert (tmp_path / "gallery" / "z-1.png").read_bytes() == b"picture"


def test_the_page_has_every_figure_and_its_own_counts(tool: ModuleType) -> None:
    page = (tool.DOCS / "gallery.md").read_text(encoding="utf-8")
    sections = tool.sections_of(page)
    assert set(sections) == set(registry())
    assert tool.whole(sections) == tool.without(page)
    assert {path.stem for path in (tool.DOCS / "gallery").glob("*.png")} == set(registry())
