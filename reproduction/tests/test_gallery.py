"""The gallery's pictures and tables are made from the rows beside them, and it says where these come from."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

from quietmean_reproduction import registry
from quietmean_reproduction.run import draw
from support.programs import module_of

# Figures whose rows are yet to be kept: what the page has of them is of an earlier run at full size.
MISSING: set[str] = set()
KEPT = sorted(set(registry()) - MISSING)
tool = module_of("tools", "make_gallery")


def texts_of(picture: bytes) -> dict[str, str]:
    """What a PNG says of itself."""
    found, place = {}, 8
    while place < len(picture):
        (size,) = struct.unpack(">I", picture[place : place + 4])
        if picture[place + 4 : place + 8] == b"tEXt":
            name, _, text = picture[place + 8 : place + 8 + size].partition(b"\0")
            found[name.decode()] = text.decode()
        place += size + 12
    return found


def test_every_figure_has_rows_or_is_named(tool: ModuleType) -> None:
    assert tool.with_rows() == [name for name in registry() if name not in MISSING]
    assert set(tool.made()) == set(KEPT)
    text = (tool.DOCS / "measurements/gallery.md").read_text(encoding="utf-8")
    named = text.split("Rows are missing of ")[1].split(":")[0] if "Rows are missing of" in text else ""
    assert {name.strip("`") for name in named.split(", ") if name} == MISSING


def test_the_page_is_what_the_rows_say(tool: ModuleType) -> None:
    text = (tool.DOCS / "measurements/gallery.md").read_text(encoding="utf-8")
    assert set(tool.sections_of(text)) == set(registry())
    assert tool.page() == tool.without(text), "python tools/make_gallery.py"
    assert {path.stem for path in (tool.DOCS / "gallery").glob("*.png")} == set(registry())


@pytest.mark.parametrize("name", KEPT)
def test_rows_say_their_seed_and_size_and_estimates_have_intervals(tool: ModuleType, name: str) -> None:
    rows = tool.read_rows(tool.rows_of(name))
    assert rows.columns[:2] == ["seed", "size"]
    assert set(rows["seed"]) == {0}
    assert set(rows["size"]) == {"full"}
    assert len(rows) > 0
    estimates = {column.removesuffix("_standard_error") for column in rows.columns if column.endswith("_standard_error")}
    estimates |= {"share"} & set(rows.columns)
    for estimate in estimates:
        part = rows.drop_nulls([f"{estimate}_low", f"{estimate}_high"])
        assert len(part) > 0
        assert (part[f"{estimate}_low"] <= part[estimate]).all()
        assert (part[estimate] <= part[f"{estimate}_high"]).all()
    for claim in registry()[name].claims(rows):
        if claim.interval is not None:
            assert claim.ours is not None
            assert claim.interval[0] <= claim.ours <= claim.interval[1]
    # What is random has intervals, or rows of its own for each repetition.
    assert estimates or registry()[name].timed


@pytest.mark.parametrize("name", KEPT)
def test_a_picture_is_drawn_from_the_rows_beside_it(tool: ModuleType, name: str, tmp_path: Path) -> None:
    """Byte for byte with the same version of matplotlib."""
    rows = tool.rows_of(name)
    kept = rows.with_suffix(".png").read_bytes()
    draw(registry()[name], rows, tmp_path / "new.png")
    new = (tmp_path / "new.png").read_bytes()
    assert texts_of(kept)["Source"] == f"sha256 {hashlib.sha256(rows.read_bytes()).hexdigest()}" == texts_of(new)["Source"]
    if texts_of(kept)["Software"] == f"matplotlib {mpl.__version__}":
        assert new == kept, "python tools/make_gallery.py"


def test_a_figure_without_rows_stays_as_it_is_and_is_named(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tool.DOCS / "measurements/gallery.md").read_text(encoding="utf-8")
    (tmp_path / "gallery").mkdir()
    (tmp_path / "measurements").mkdir()
    (tmp_path / "measurements/gallery.md").write_text(text, encoding="utf-8")
    for path in (tool.DOCS / "gallery" / tool.MADE, tool.rows_of("inca-1")):
        (tmp_path / "gallery" / path.name).write_bytes(path.read_bytes())
    row = next(line for line in (tmp_path / "gallery" / tool.MADE).read_text().splitlines() if line.startswith("inca-1,"))
    (tmp_path / "gallery" / tool.MADE).write_text(f"figure,commit,processor_seconds\n{row}\n")
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    page = tool.page()
    assert tool.sections_of(page) == tool.sections_of(text)
    assert "The rows of 1 figures are kept" in page
    assert "`adqsp-1`, " in page.split("Rows are missing of ")[1].split(":")[0]


def test_other_rows_make_another_picture_and_another_page(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "inca-1"
    rows = tool.read_rows(tool.rows_of(name))
    (tmp_path / "gallery").mkdir()
    changed = tmp_path / "gallery" / f"{name}.csv"
    rows.with_columns(mse=rows["mse"] * 1.5).write_csv(changed)
    draw(registry()[name], changed, changed.with_suffix(".png"))
    known, before = tool.made()[name], tool.section_of(registry()[name], tool.made()[name])
    assert changed.with_suffix(".png").read_bytes() != tool.rows_of(name).with_suffix(".png").read_bytes()
    monkeypatch.setattr(tool, "DOCS", tmp_path)
    assert tool.section_of(registry()[name], known) != before
