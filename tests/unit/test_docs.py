"""The documentation stays small, whole and plain: pages, words, links, what the code cites, and sentences."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.pages import blocks, head, installed
from support.programs import module_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Generated figures and tables, and proofs.
UNCOUNTED = ("measurements/", "reference/", "proofs/")
MOST_PAGES, MOST_WORDS = 45, 50_000
# Each of these is within the bars by itself, so that one cannot lean on another.
PLAIN = (
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "docs/analyse/",
    "docs/answer/",
    "docs/index.md",
    "docs/mathematics/",
    "docs/models/",
    "docs/reference.md",
    "docs/research/",
    "docs/start/",
    "docs/take-part/",
    "docs/trust/",
)

tool = module_of("tools", "sentences")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


ALL = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
COUNTED = [page for page in ALL if not name_of(page).startswith(UNCOUNTED)]
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "reproduction/README.md")]


def test_there_are_few_pages_of_few_words() -> None:
    """A change that adds a page names the page that it replaces."""
    words = sum(len(page.read_text("utf-8").split()) for page in COUNTED)
    assert len(COUNTED) <= MOST_PAGES
    assert words <= MOST_WORDS


@pytest.mark.parametrize("page", COUNTED, ids=name_of)
def test_each_page_says_at_its_head_for_whom_it_is(page: Path) -> None:
    """Four short lines below the title; who types a block of the page finds there the line that installs what it needs."""
    page_head = head(name_of(page))
    assert list(page_head) == ["For", "Time", "You need", "At the end"]
    for label, text in page_head.items():
        assert len(f"- **{label}** {text}") <= 130, text
        assert text.endswith("."), text
    assert re.match(r"\d+ minutes?\b", page_head["Time"])
    install = installed(name_of(page))
    assert install is not None or not any(blocks(name_of(page), language) for language in ("sh", "python"))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert install is None or set(install.extras) <= set(extras)


def test_each_page_is_in_one_table_of_contents() -> None:
    named: Counter[str] = Counter()
    for page in ALL:
        for tree in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```$", page.read_text("utf-8")):
            for line in tree.splitlines():
                if line.strip() and not line.startswith(":"):
                    named[name_of((page.parent / f"{line.strip()}.md").resolve())] += 1
    assert named == Counter({name_of(page) for page in ALL} - {"index.md"})


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "Code", re.sub(r"(?ms)^( *)(```+|~~~+)[^\n]*\n.*?^\1\2$", "", text))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Names of the headings and labels of a page, as Sphinx makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))
    seen: Counter[str] = Counter()
    found = set(re.findall(r"(?m)^\(([\w-]+)\)=$", text)) | set(re.findall(r'\b(?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"(?m)^#{1,3} (.+)$", text):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = "".join(sign for sign in plain.replace(" ", "-") if sign in "-_" or unicodedata.category(sign)[0] in "LNM")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


@pytest.mark.parametrize("page", [*OTHERS, *ALL], ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    text = without_code(page.read_text("utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    wrong = []
    for target in targets:
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            wrong.append(target)
    assert not wrong


def sources() -> dict[Path, str]:
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    return {path: path.read_text("utf-8") for path in files if path.suffix in {".py", ".toml", ".j2", ".html"}}


def test_each_page_and_section_that_code_cites_exists() -> None:
    """`docs/x/y.md`, `docs/x/y.md#anchor`, and a heading in quotes behind it."""
    wrong = []
    for path, text in sources().items():
        if path == Path(__file__):
            continue
        for cited, anchor, title in re.findall(r'\bdocs/([\w/-]+\.md)(?:#([\w-]+))?(?:`*, "([^"\n]+)")?', text):
            there = DOCS / cited
            if not there.exists():
                wrong.append((path.name, cited))
            elif anchor and anchor not in anchors(there):
                wrong.append((path.name, f"{cited}#{anchor}"))
            elif title and title[0].isupper() and f" {title}\n" not in there.read_text("utf-8"):
                wrong.append((path.name, f"{cited}, {title}"))
    assert not wrong


@pytest.mark.parametrize("page", [page for page in ALL if name_of(page).startswith("proofs/")], ids=lambda page: page.name)
def test_each_page_of_proofs_is_cited(page: Path) -> None:
    """By code, or by another page that explains what it proves."""
    by_code = any(f"docs/{name_of(page)}" in text for path, text in sources().items() if path.is_relative_to(ROOT / "src"))
    link = re.compile(rf"\]\([^)\s]*\b{re.escape(page.name)}[)#]")
    assert by_code or any(link.search(other.read_text("utf-8")) for other in ALL if other != page)


COMMENT = "<!-- a comment that goes over\ntwo lines and more -->\n(a-label)=\n# A heading of five words\n\n"
UNDERLINED = "---\ntitle: some words that are not prose\n---\nA heading that is underlined\n---\n\n"
FORMULAS = "The value is then as given\n\n$$\nx = y + one + two + three\n$$\n\nwith a matrix in it.\n\n$$a + b + c + d + e,$$"
CELLS = (
    "| a | b |\n|---|---|\n| Twelve words are not counted | This cell has `a \\| b` and then it has many more words than twelve |"
)
OTHERS_OF_MYST = ":::{note}\n:class: one two three four five\nA note of myst has seven words.\n:::"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The planner tries many graphs, e.g. Erdos graphs, and keeps the best. It stops then and says so.", [12, 6]),
        ("See Fig. 2 of the paper for what parties send. Dr. Smith wrote that page in one day.", [10, 8]),
        ("The bound is due to Kairouz et al. (2015) and others. It holds for sums, etc. The rest follows from it.", [11, 5, 5]),
        ("The error is 1.5 times that of a curator. Version 0.1.0 prints the same number again.", [9, 7]),
        ("The command reads the whole file. `plan` prints the number of rounds. mu is what it adds up.", [6, 6, 6]),
        ("The file is called `a.b.toml`. quietmean reads it line by line. 20 parties take a whole day.", [5, 6, 6]),
        ("It waits ... and then prints what it has found so far.", [11]),
        ("It prints two numbers of all: The first is the mean; the second is its error.", [6, 10]),
        ("Write to https://example.org/a.b/c.html and wait. The sum $$a + b. C$$ has the value of all.", [5, 8]),
        ("> A quote of two lines says\n> that the parties are honest.\n> A second sentence follows in it.", [11, 6]),
        ("- The first item says one thing\n  - The nested item says another thing\n1) The third item says a third", [6, 6, 6]),
        ("- The first item says one thing:\n\n  ```sh\n  a b c d e f g\n  ```\n\n    It goes on after the block.", [6, 6]),
        ("<table><tr><td>Four cells have few words</td><td>and a tag ends each one</td></tr></table>", [5, 6]),
        (CELLS, [13]),
        ("See {doc}`the page of protocols <protocols>` for what each party sends.", [7]),
        ("```{note}\nA note of myst has seven words.\n```\n```{eval-rst}\n.. autoclass:: one two three four\n```", [7]),
        (OTHERS_OF_MYST, [7]),
        (f"{COMMENT}The text has exactly six words.", [6]),
        (f"{UNDERLINED}The text has exactly six words.", [6]),
        (FORMULAS, [6, 5]),
        ("[ref]: https://example.org/one/two/three/four/five\n\n    indented code is not prose at all", []),
        ("Two words.\n\nThis paragraph has five words.", [5]),
    ],
)
def test_sentences_are_counted_as_they_are_read(tool: ModuleType, text: str, words: list[int]) -> None:
    assert [sentence.words for sentence in tool.of_markdown(text, "page.md")] == words


def test_a_long_sentence_and_words_to_avoid_are_found(tool: ModuleType) -> None:
    long = " ".join(["The party sends a share, then waits (a while) for another"] * 4) + "."
    fine, found = tool.of_markdown(f"# A page\n\nIt starts here and is short.\n{long}\n", "page.md")
    assert (fine.words, fine.commas, fine.alarms) == (6, 0, [])
    assert (found.words, found.commas, found.place) == (44, 8, "page.md:3")
    assert found.words > tool.LONG
    texts = "A share is no secret here. Whoever reads it may leave. Nothing is lost a priori here. It is no longer a share."
    assert [sentence.alarms for sentence in tool.of_markdown(texts, "")] == [["is no X"], ["whoever"], ["private word"], []]


def test_texts_of_the_program_are_counted(tool: ModuleType) -> None:
    module = (
        '"""A docstring does not count here."""\nprint(f"{name} holds {count} rows of data. " "Give it another file then.")\n'
    )
    assert [sentence.text for sentence in tool.of_source(module, "m.py")] == [
        "it holds it rows of data.",
        "Give it another file then.",
    ]
    page = "<style>p { a b c d e }</style><p>It has {{ count }} rows of data.</p><li>{% if a %}One item of five words</li>"
    assert [sentence.words for sentence in tool.of_template(page, "t.j2")] == [6, 5]


@pytest.mark.parametrize("folder", PLAIN)
def test_sentences_of_finished_pages_are_plain(tool: ModuleType, folder: str) -> None:
    found = [sentence for group in ("README", "docs") for sentence in written(tool)[group] if sentence.place.startswith(folder)]
    assert found
    assert sum(sentence.words for sentence in found) / len(found) <= tool.MEAN_WORDS
    assert sum(sentence.words > tool.LONG for sentence in found) / len(found) <= tool.LONG_SHARE
    assert sum(sentence.commas for sentence in found) / len(found) <= tool.MEAN_COMMAS
    assert not [(sentence.place, sentence.alarms) for sentence in found if sentence.alarms]


@cache
def written(tool: ModuleType) -> dict[str, list[Any]]:
    found = tool.of_pages(ROOT)
    assert isinstance(found, dict)
    return found
