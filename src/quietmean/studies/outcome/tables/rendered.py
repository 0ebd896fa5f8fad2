"""Tables as a page of HTML and as LaTeX, by templates in which everything is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from quietmean.core.extras import import_extra
from quietmean.studies.outcome.tables.model import ResultTable

_PACKAGE = "quietmean.studies.outcome.tables"
# Characters that LaTeX reads as commands, or that pdfLaTeX has by commands only. Letters are up to its engine.
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        # In brackets at the begin of a cell it would be an option of the line break before it.
        "[": "{[}",
        "]": "{]}",
        "\u2212": "$-$",
        "\u2013": r"\textendash{}",
        "\u00b1": r"$\pm$",
        "\u221e": r"$\infty$",
        "\u2264": r"$\leq$",
        "\u2265": r"$\geq$",
        "\u00b2": r"\textsuperscript{2}",
        "\u03b5": r"$\varepsilon$",
        "\u03b4": r"$\delta$",
        "\u03c4": r"$\tau$",
        "\u00a0": "~",
    }
)


def latex(text: str) -> str:
    """The text as LaTeX prints it."""
    # Two in a row would be a dash.
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX))


def html_text(tables: Sequence[ResultTable], made_by: str) -> str:
    """A page that needs nothing else. Raises :class:`InputError` without the extra."""
    return _rendered("tables.html", tables, made_by, autoescape=True)


def latex_text(tables: Sequence[ResultTable], made_by: str) -> str:
    """Tables for \\input, with booktabs and longtable. Raises :class:`InputError` without the extra."""
    syntax = {"block_start_string": "<%", "block_end_string": "%>", "variable_start_string": "<<", "variable_end_string": ">>"}
    syntax |= {"comment_start_string": "<#", "comment_end_string": "#>"}
    return _rendered("tables.tex", tables, made_by, finalize=_finished, **syntax)


class _Ready(str):
    """LaTeX already."""


def _finished(value: Any) -> str:
    return value if isinstance(value, _Ready) else latex(str(value))


def _rendered(name: str, tables: Sequence[ResultTable], made_by: str, **syntax: Any) -> str:
    jinja2 = import_extra("jinja2", "documents", "a table in this format")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(_PACKAGE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **syntax,
    )
    columns = {table: _Ready("l" + "r" * (len(table.heads) - 1)) for table in tables}
    text: str = environment.get_template(name).render(tables=tables, made_by=made_by, columns=columns)
    return text
