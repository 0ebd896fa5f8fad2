"""The page templates."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.core.output import Output
from quietmean.core.readable import count_of
from quietmean.report.words import unbroken

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
# The bytes at the beginning of a page within which it says what it is.
_HEAD = 4096


def page_at(path: Path, kind: str, whose: str, force: bool = False) -> Output:
    """Return the output file of a page of this ``kind``, which may replace an earlier page with the same digest ``whose``.

    With ``force`` it may replace any page of the kind.
    """
    head = f'<meta name="generator" content="quietmean {kind}">\n<meta name="quietmean-whose" content="'.encode()
    return Output(
        path,
        f"the {kind}",
        "--report" if kind == "certificate" else "",
        ends=(".html", ".htm"),
        own=lambda content: bool(whose) and head + whose.encode() + b'"' in content[:_HEAD],
        kind=lambda content: head in content[:_HEAD],
        force=force,
    )


def _parts(text: str) -> list[str]:
    """A sentence in parts, of which every second one is a date: it has to stay within a line, and to be copied as it is."""
    return re.split(r"(\d{4}-\d\d-\d\d)", unbroken(text))


def _whole_figures(value: Any) -> Any:
    """No end of a line within "ε = 2"; figures, which are marked as safe, stay as they are."""
    return re.sub("([εδ]) = ", "\\1\u00a0=\u00a0", value) if type(value) is str else value


def templates() -> Environment:
    """The templates of the pages: everything is escaped, and a missing field is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_whole_figures,
    )
    environment.filters |= {"parts": _parts, "count_of": count_of}
    return environment


def render_page(kind: str, whose: str, **content: Any) -> str:
    """A page of this ``kind`` about ``whose`` (see :func:`page_at`).

    All pages begin with ``title``, ``summary`` and ``first``, what is to be seen at a glance; then come their own sections.
    """
    return templates().get_template(f"{kind.replace(' ', '_')}.html").render(kind=kind, whose=whose, **content)
