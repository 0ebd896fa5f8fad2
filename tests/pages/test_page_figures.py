"""Pages that tools make say which figures of plans they were made from, and these are what the code gives now.

Pages about plans that are made at once, and those of the slowest ones, are computed anew elsewhere:
``tests/planning/test_pages_about_plans.py`` and ``test_cordp_costs_page.py``.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a tool forks its parties, on Linux only")
# Of pages that are whole products of their tool, in a second; and of those that have the stamp of the slowest plans.
ANEW = {"reference/protocols.md", "reference/references.md", "measurements/cordp-costs.md", "proofs/packed-sharing.md"}
STAMPED = {"measurements/comparison.md", "measurements/protocol-map.md", "measurements/gate-cost.md", "proofs/inca.md"}
FIGURES = (
    "measurements/packed-bars.md",
    "measurements/committee-bars.md",
    "measurements/scale.md",
    "measurements/calibrations.md",
    "measurements/gallery.md",
    "measurements/performance.md",
    "measurements/learning-tables.md",
    "measurements/statistics-bars.md",
    "measurements/real-data-bars.md",
    "measurements/model-bars.md",
    "measurements/look-bars.md",
    "measurements/joined-errors.md",
)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in ("tools", "tests"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    import page_figures

    return page_figures


@pytest.mark.parametrize("page", FIGURES)
def test_a_page_is_made_from_what_the_code_gives(tool: ModuleType, page: str) -> None:
    assert not tool.changed(page), "measure what is on the page anew: make pages"


def test_no_page_that_a_tool_makes_is_left_out(tool: ModuleType) -> None:
    """Of all pages that name a tool or a benchmark as the source of their figures."""
    source = re.compile(
        r"(made|written|prints?)\b.{0,60}?\b(tools/\w+\.py|make bench)|(tools/\w+\.py).{0,10}(writes|makes)|make bench",
        re.S | re.I,
    )
    folders = ("measurements", "reference", "proofs")
    pages = [path for folder in folders for path in (DOCS / folder).glob("*.md")]
    found = {path.relative_to(DOCS).as_posix() for path in pages if source.search(path.read_text(encoding="utf-8"))}
    assert set(tool.PAGES) == set(FIGURES)
    assert found >= set(FIGURES)
    assert found - set(FIGURES) - ANEW - STAMPED == set()


def test_make_pages_runs_every_tool() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.split("\npages: .venv")[1].split("\n\n")[0]
    named = {
        found
        for path in DOCS.rglob("*.md")
        for found in re.findall(
            r"[Mm]ade by[^.]{0,60}?`python tools/(\w+)\.py|written by tools/(\w+)\.py", path.read_text("utf-8")
        )
    }
    for found in named | {("calibrations", "")}:
        assert f"tools/{''.join(found)}.py" in recipe


def test_computed_parts_are_those_of_the_tools(tool: ModuleType) -> None:
    import packed_options
    import scale

    page = packed_options.PAGE.read_text(encoding="utf-8")
    assert packed_options.written(page) == page, "run python tools/packed_options.py"
    page = tool.without(scale.PAGE.read_text(encoding="utf-8"))
    begin, end = scale.make_page(False).split(scale.NOT_MEASURED)
    assert page.startswith(begin), "run python tools/scale.py --measure"
    assert page.endswith(end), "run python tools/scale.py --measure"


@pytest.mark.usefixtures("tool")
def test_predictions_of_the_bars_are_those_of_the_plans() -> None:
    import packed_bars

    from support.packed_bars import BARS

    page = packed_bars.PAGE.read_text(encoding="utf-8")
    for parties, colluding, dropouts, bar in BARS:
        predicted = packed_bars.predictions(parties, colluding, dropouts)
        (line,) = re.findall(rf"\| n = {parties}, c = {colluding}, {dropouts:.0%} \| {bar:g} \| (.*) \|", page)
        cells = line.split(" | ")
        assert [*cells[:2], cells[3]] == [f"{one:.3f}" for one in predicted], "run python tools/packed_bars.py"
        # And what was simulated is what was predicted, but for one time in a thousand.
        simulated, deviation = map(float, cells[2].rstrip(")").split(" ("))
        assert abs(simulated - predicted[1]) <= 3.3 * deviation + 0.001


def changed_in_a_copy(folder: Path, file: str, old: str, new: str) -> set[str]:
    """The pages that are red where one constant of the package is another."""
    shutil.copytree(
        ROOT / "src" / "quietmean", folder / "quietmean", ignore=shutil.ignore_patterns("__pycache__", "*.html", "*.js")
    )
    changed = folder / "quietmean" / file
    text = changed.read_text(encoding="utf-8")
    assert old in text
    changed.write_text(text.replace(old, new), encoding="utf-8")
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "import quietmean, page_figures\n"
        f"assert quietmean.__file__.startswith({str(folder)!r})\n"
        "for page in page_figures.PAGES:\n"
        "    if page_figures.changed(page): print(page)\n"
    )
    paths = os.pathsep.join(map(str, (folder, ROOT / "tools", ROOT / "tests")))
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True
    )
    return set(run.stdout.split())


@pytest.mark.slow
def test_one_constant_makes_every_page_red_that_rests_on_it(tmp_path: Path) -> None:
    found = changed_in_a_copy(tmp_path, "privacy/conversion.py", "near = epsilon / mu - mu / 2", "near = epsilon / mu - mu / 3")
    assert found == set(FIGURES)


def test_a_changed_figure_is_named(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tool.PAGES["measurements/scale.md"]

    def another() -> object:
        for what, value in kept():
            yield what, value * (1.001 if what == "error of 300" else 1)

    monkeypatch.setattr(tool, "PAGES", {**tool.PAGES, "measurements/scale.md": another})
    assert tool.changed("measurements/scale.md") == ["error of 300"]


def test_no_two_pages_keep_their_lines_under_one_name() -> None:
    """Tools may be given one folder: a line of one page must not be taken for another's."""
    beginnings = [
        (tool.name, ast.unparse(call.args[1]).removeprefix("f").strip("'\"").partition("-")[0])
        for tool in sorted((ROOT / "tools").glob("*.py"))
        if tool.name != "page_parts.py"
        for call in ast.walk(ast.parse(tool.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "resumed"
    ]
    assert len(beginnings) >= 7
    names = [beginning for _, beginning in beginnings]
    assert all(name.isalpha() for name in names), beginnings
    assert len(set(names)) == len(names), beginnings


def test_each_tool_ends_its_page_with_the_figures_of_that_page(tool: ModuleType) -> None:
    """By its place in the docs: a name alone is found after everything is measured to be no page."""
    for path in sorted((ROOT / "tools").glob("*.py")):
        for called in re.findall(r"\bending\((.*?)[,)]", path.read_text(encoding="utf-8")):
            if called not in ("page: str", "page"):
                page = called.strip("f\"'").replace("{PAGE.name}", f"{path.stem.replace('_', '-')}.md")
                assert page in tool.PAGES, (path.name, called)
