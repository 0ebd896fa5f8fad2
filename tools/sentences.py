"""Measure the sentences that people read: README, docs, help, errors, printed texts.

    python tools/sentences.py             a table: words a sentence, share of long ones, commas, phrases to avoid
    python tools/sentences.py --worst 20  also the longest sentences of each group, with their places

A sentence ends at a full stop (not that of "e.g." or "Fig. 2"), a colon or semicolon before a capital, the end of a paragraph or
item. A table cell of more than 12 words is one. Brackets and dashes count as commas. Code, headings and links are not prose.

An error says what is wrong, and in another sentence what to do: "`thing` is wrong. Do this." It holds the form if a sentence
behind the first begins with a verb of IMPERATIVES, and is short if each has 20 words or fewer. Neither share may fall.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MEAN_WORDS, LONG, LONG_SHARE, MEAN_COMMAS = 15.0, 30, 0.05, 0.9
CELL_WORDS = 12
# What must hold the form of an error, and the part of errors whose sentences are all short.
LEAST_FORM, LEAST_SHORT, SHORT = 0.97, 0.97, 20
FEWEST_WORDS = 5
UNCOUNTED = ("docs/measurements/", "docs/reference/", "docs/proofs/")
AVOID = {
    "is no X": re.compile(r"\b(?:is|are|was) no (?!longer|more\b|less\b|other\b|one\b)\w+"),
    "whoever": re.compile(r"\b(?:whoever|whatever|whomever|wherever)\b", re.IGNORECASE),
    "private word": re.compile(
        r"\b(?:stands for|told apart|elsewhere|amongst|hearsay|say yes to|as it happened|a priori|dial(?:s|led|ling)?)\b"
        r"|(?<!there )\b(?:is|are) (?-i:none)\b|\bconveners?\b(?! in)",
        re.IGNORECASE,
    ),
}
# A full stop; a colon or semicolon before a capital.
_STOP = re.compile(r"(?<=[.!?])(?<!\.\.\.)[\"')\]*_]*\s+(?=[\"'(\[*_`]*\w)|[:;]\s+(?=[\"'(\[*_]*[A-Z])")
# A full stop behind one of these ends no sentence: always, before a number, or before a small letter.
_SHORT = re.compile(
    r"\b(e\.g|i\.e|cf|vs|ca|approx|incl|resp|Dr|Prof|Mr|Ms|St"
    r"|(?:pp?|vol|[Ff]igs?|[Tt]ab|[Ss]ec|[Ee]qs?|[Nn]o)(?=\.\s[\d(])|(?:al|etc)(?=\.\s[a-z(]))\.(?=\s)"
)
_KEPT = "\u2024"
# Errors for a user, by the name of the class or function that raises them.
USER_ERRORS = re.compile(
    r"AccountQuestion|InputError|InvalidInput|NoBoundsError|NotStarted|NotYet|NothingPublished|NumericalError|OtherSession"
    r"|ProtocolFailure|SeriesOver|StorageError|StrayValue|UndeclaredColumn|fail"
)
IMPERATIVES = re.compile(
    r"(?i)accept|add|admit|agree|allow|ask|attack|begin|bound|bring|call|change|charge|check|choose|compare|copy|correct|count"
    r"|declare|describe|encode|end|export|find|finish|fit|give|go|hand|install|join|keep|leave|let|list|load|look|lower|make|mend"
    r"|move|name|number|plan|protect|put|raise|read|remove|rename|repair|reserve|restore|return|round|run|save|say|scale|seal|see"
    r"|send|set|show|sort|split|start|state|stay|stop|take|tell|try|uninstall|unpack|use|wait|write"
)
# What to do is a sentence of its own, but behind a label of one word. "round 3 of 7", "send until" and "lower v" are no commands.
_BEHIND_A_COLON = re.compile(
    rf"\s\S+[:;]\s(?!round\b)(?:{IMPERATIVES.pattern.removeprefix('(?i)')})\b(?=[\s.,'\"])(?! (?:of|until|v)\b)"
)
_WORD = re.compile(r"[^\W_][\w'’.-]*")


@dataclass(frozen=True)
class Sentence:
    """A sentence, and where it stands (`path:line`)."""

    text: str
    place: str

    @property
    def words(self) -> int:
        """Words of the sentence; a piece of code or a number is one."""
        return len(_WORD.findall(self.text))

    @property
    def commas(self) -> int:
        """Commas, pairs of brackets and dashes."""
        return self.text.count(",") + self.text.count("(") + len(re.findall(r"\s[-–—]\s", self.text))

    @property
    def alarms(self) -> list[str]:
        """Names of the phrases to avoid that it holds."""
        printed = {"remedy behind a colon": _BEHIND_A_COLON} if self.place.startswith("src/") else {}
        return [name for name, pattern in (AVOID | printed).items() if pattern.search(self.text)]


def split(paragraph: str, place: str) -> Iterator[Sentence]:
    """Split a paragraph of plain prose into sentences."""
    for text in _STOP.split(_SHORT.sub(rf"\1{_KEPT}", " ".join(paragraph.split()))):
        whole = text.replace(_KEPT, ".").strip()
        if len(_WORD.findall(whole)) >= FEWEST_WORDS:
            yield Sentence(whole, place)


def _plain(text: str) -> str:
    """Take the marks of Markdown and reStructuredText out of a line; a piece of code becomes one word."""
    text = re.sub(r"``[^`]+``|`[^`]+`|<?\bhttps?://[^\s)>]*[^\s)>.,;:]>?", "Code", text)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|\{[\w:-]+\}", r"\1", text)
    text = re.sub(r"\$\$[^$]+\$\$|\$[^$]+\$", "Code", text)
    text = re.sub(r"</?[a-zA-Z][^>]*>", "", text)
    return re.sub(r"<[^<>]+>", "Code", re.sub(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}", "", text))


_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_FENCE = re.compile(r"\s*(`{3,}|~{3,}|\${2})\s*(\S*)")
# Fences whose text is prose, and tags that end a paragraph.
_PROSE = re.compile(r"\{(?:note|warning|tip|hint|important|caution|attention|danger|error|seealso|admonition|topic)\}")
_BLOCK = re.compile(r"(?i)</?(?:p|div|table|tr|t[dh]|thead|tbody|ul|ol|li|dl|d[td]|h\d|details|summary|br|hr)\b[^>]*>")
_NOT_PROSE = re.compile(r"#|:{3}|:[\w-]+:|>>>|\[[^\]^]+\]:\s|\([\w-]+\)=$|(?:-{3,}|={3,}|\*{3,})\s*$")


def _blank(text: str) -> str:
    """Empty a piece of a page, while its lines stay."""
    return "\n" * text.count("\n")


def of_markdown(text: str, path: str) -> Iterator[Sentence]:
    """Yield the sentences of a page of Markdown."""
    text = re.sub(r"(?s)\A---\n.*?\n---\n|<!--.*?-->", lambda match: _blank(match.group()), text)
    paragraph: list[str] = []
    # Line of its beginning; the fence that is open; those around prose; where the text of the last item begins.
    first, fence, around, depth = 0, "", list[str](), 0

    def ended() -> Iterator[Sentence]:
        nonlocal paragraph
        for block in _BLOCK.split(" ".join(paragraph)):
            yield from split(_plain(block), f"{path}:{first}")
        paragraph = []

    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"^\s*(?:>(?!>)\s?)+", "", line)
        mark = _FENCE.match(line)
        if fence or mark:
            yield from ended()
            if fence:
                fence = "" if mark and mark[1].startswith(fence) else fence
            elif mark and around and mark[1] == around[-1] and not mark[2]:
                around.pop()
            elif mark and _PROSE.match(mark[2]):
                around.append(mark[1])
            elif mark and not (mark[1] == "$$" and line.strip().rstrip(".,;").endswith("$$") and len(line.strip()) > 2):
                fence = mark[1]
            continue
        item = _ITEM.match(line)
        indent = len(line) - len(line.lstrip())
        code = not paragraph and indent >= depth + 4
        if line.lstrip().startswith("|"):
            yield from ended()
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                if len(_WORD.findall(_plain(cell))) > CELL_WORDS:
                    yield from split(_plain(cell), f"{path}:{number}")
            continue
        if re.match(r"(?:=+|-{3,})\s*$", line) and paragraph:
            paragraph = []
            continue
        if not line.strip() or code or item or _NOT_PROSE.match(line):
            yield from ended()
        if code or not line.strip() or _NOT_PROSE.match(line):
            continue
        if item:
            depth = item.end()
        elif not paragraph and indent < depth:
            depth = indent
        if not paragraph:
            first = number
        paragraph.append(_ITEM.sub("", line, count=1) if item else line)
    yield from ended()


def _said(node: ast.expr) -> str | None:
    """Return the text of a string or f-string, of which each hole is one word; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "it" for part in node.values)  # type: ignore[misc]
    return None


def of_source(text: str, path: str) -> Iterator[Sentence]:
    """Yield the sentences of the texts in a module that are no docstrings: errors, help, printed lines."""
    tree = ast.parse(text)
    inner = {
        id(child) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for child in ast.walk(node) if child is not node
    }
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in inner | docstrings:
            said = _said(node)
            if said and " " in said and "SELECT" not in said:
                yield from split(_plain(said), f"{path}:{node.lineno}")


def errors_of(text: str, path: str) -> Iterator[tuple[Sentence, ...]]:
    """Yield the sentences of each error that a module raises for a user, if its text stands there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = node.args[0]
            for each in (first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,):
                said = _said(each) if USER_ERRORS.fullmatch(name) else None
                # Of a text that ends with what somebody else wrote, nobody knows here how it ends.
                if said and " " in said and not re.search(r"[.:)] it\.?$|^it it$", said):
                    yield tuple(Sentence(part.strip(), f"{path}:{node.lineno}") for part in _STOP.split(_plain(said)))


def has_form(error: Sequence[Sentence]) -> bool:
    """Does a sentence behind the first begin with what to do?"""
    return any(IMPERATIVES.fullmatch(each.text.split()[0].strip("\"'`,.")) for each in error[1:] if each.text)


def errors(root: Path) -> list[tuple[Sentence, ...]]:
    """Return all errors of the program, each as its sentences."""
    modules = sorted((root / "src").rglob("*.py"))
    return [error for module in modules for error in errors_of(module.read_text(), module.relative_to(root).as_posix())]


def of_template(text: str, path: str) -> Iterator[Sentence]:
    """Yield the sentences of a template: tags and statements taken out."""
    text = re.sub(r"(?s)<(style|script)\b.*?</\1>|\{[%#].*?[%#]\}", " ", text)
    text = re.sub(r"(?s)\{\{.*?\}\}", "it", text)
    for block in re.split(
        r"(?i)</?(?:p|li|h\d|td|th|div|dt|dd|tr|table|section|summary|label|option|button)\b[^>]*>|\n\s*\n", text
    ):
        yield from split(re.sub(r"<[^>]+>", "", block), path)


def of_pages(root: Path) -> dict[str, list[Sentence]]:
    """Return the sentences of README and docs."""
    found: dict[str, list[Sentence]] = {"README": [], "docs": []}
    pages = [*root.glob("*.md"), *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        name = page.relative_to(root).as_posix()
        if not name.startswith(UNCOUNTED) and name != "CHANGELOG.md":
            found["README" if name == "README.md" else "docs"] += of_markdown(page.read_text(), name)
    return found


def groups(root: Path) -> dict[str, list[Sentence]]:
    """Return all sentences by group."""
    found: dict[str, list[Sentence]] = {**of_pages(root), "texts of the program": [], "templates": []}
    for module in sorted((root / "src").rglob("*.py")):
        found["texts of the program"] += of_source(module.read_text(), module.relative_to(root).as_posix())
    for template in sorted([*(root / "src").rglob("*.j2"), *(root / "src").rglob("*.html")]):
        found["templates"] += of_template(template.read_text(), template.relative_to(root).as_posix())
    return found


def main() -> int:
    """Print the table; the exit code is 1 where a group that is held to the bars is beyond one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--under", default="", help="only what begins with this path")
    parser.add_argument(
        "--held", default="README,docs,texts of the program,templates,errors", help="groups whose figures must hold"
    )
    options = parser.parse_args()
    beyond = []
    print(f"{'':24}{'sentences':>10}{'words':>8}{'> 30':>8}{'commas':>8}   avoid")
    for group, all_of in groups(Path(__file__).parents[1]).items():
        sentences = [each for each in all_of if each.place.startswith(options.under)]
        if not sentences:
            continue
        count = len(sentences)
        words = sum(each.words for each in sentences) / count
        long = sum(each.words > LONG for each in sentences) / count
        commas = sum(each.commas for each in sentences) / count
        alarms = [each for each in sentences if each.alarms]
        print(f"{group:24}{count:>10}{words:>8.1f}{long:>8.1%}{commas:>8.2f}   {len(alarms)}")
        if words > MEAN_WORDS or long > LONG_SHARE or commas > MEAN_COMMAS or alarms:
            beyond.append(group)
        for each in sorted(sentences, key=lambda each: -each.words)[: options.worst]:
            print(f"  {each.place}: {each.words} words: {each.text}")
        if options.worst:
            for each in alarms[: options.worst]:
                print(f"  {each.place}: {', '.join(each.alarms)}: {each.text}")
    told = [error for error in errors(Path(__file__).parents[1]) if error[0].place.startswith(options.under)]
    if told:
        formed = [error for error in told if has_form(error)]
        short = [error for error in formed if all(each.words <= SHORT for each in error)]
        form, brief = len(formed) / len(told), len(short) / len(told)
        print(f"errors: {len(told)}, {form:.1%} say what to do (bar {LEAST_FORM:.0%}), {brief:.1%} shortly ({LEAST_SHORT:.0%})")
        for error in [error for error in told if error not in formed][: options.worst]:
            print(f"  {error[0].place}: {' '.join(each.text for each in error)}")
        if not options.under and (form < LEAST_FORM or brief < LEAST_SHORT):
            beyond.append("errors")
    held = [group for group in beyond if group in options.held.split(",")]
    if held:
        bars = f"{MEAN_WORDS:g} words, {LONG_SHARE:.0%} over {LONG}, {MEAN_COMMAS} commas, no phrase to avoid"
        print(f"Beyond the bars ({bars}): {', '.join(held)}")
    return 1 if held else 0


if __name__ == "__main__":
    sys.exit(main())
