"""Columns of a study from the data dictionary of a REDCap project, a CSV file as REDCap exports it.

What a study needs to know of a column is in it for choices, yes and no, and numbers and dates with bounds. Levels are called by
their labels; exports of raw data have codes, which the site's mapping turns into these (:attr:`Dictionary.format_text`).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError
from quietmean.statistics import INDICATOR, Column

# Headings of the exported file, as the pages of REDCap and its interface for programs write them.
_HEADINGS = {
    "Variable / Field Name": "field_name",
    "Field Type": "field_type",
    "Choices, Calculations, OR Slider Labels": "select_choices_or_calculations",
    "Text Validation Type OR Show Slider Number": "text_validation_type_or_show_slider_number",
    "Text Validation Min": "text_validation_min",
    "Text Validation Max": "text_validation_max",
    "Identifier?": "identifier",
}
_MOST_BYTES = 2**24
_TAG = re.compile(r"<[^>]*>")
_SLIDER = (0.0, 100.0)


@dataclass(frozen=True)
class Dictionary:
    """The columns that a data dictionary declares.

    ``columns``: tables [[column]] of a study, by name. ``codes``: of columns with labels, what stands in exports of raw data.

    ``left_out``: fields that cannot be columns as they are, and why.
    """

    columns: Mapping[str, Mapping[str, Any]]
    codes: Mapping[str, Mapping[str, str]]
    left_out: Mapping[str, str]

    @classmethod
    def load(cls, path: Path) -> Dictionary:
        """Read a data dictionary from a file. Raises :class:`InputError` for a file of another kind."""
        columns: dict[str, Mapping[str, Any]] = {}
        codes: dict[str, Mapping[str, str]] = {}
        left_out: dict[str, str] = {}
        for row in _rows(path):
            name = row["field_name"]
            try:
                if row.get("identifier", "").lower() == "y":
                    raise _NoColumnError("it identifies persons")
                for column, table, coded in _declared(name, row):
                    # The error of a column says what is wrong with it.
                    Column.model_validate({"name": column, **table})
                    columns[column] = {"name": column, **table}
                    if coded:
                        codes[column] = coded
            except (_NoColumnError, InputError, ValueError) as error:
                left_out[name] = str(error) if isinstance(error, _NoColumnError | InputError) else "it cannot be a column"
        if not columns:
            raise InputError(
                f"{path} has no field that can be a column. Write a question with the domain, such as mean(age in 0..110)."
            )
        return cls(columns, codes, left_out)

    def chosen(self, names: Sequence[str]) -> Dictionary:
        """The dictionary with the columns of these ``names`` only."""
        return Dictionary(
            {name: self.columns[name] for name in names}, {name: self.codes[name] for name in names if name in self.codes}, {}
        )

    @property
    def format_text(self) -> str:
        """The file of settings with which raw exports are read, empty if they have no codes."""
        tables = []
        for name, coded in self.codes.items():
            pairs = ", ".join(f"{_quoted(code)} = {_quoted(label)}" for code, label in coded.items())
            tables.append(f"[mapping.columns.{_quoted(name)}]\ncodes = {{ {pairs} }}\n")
        return "".join(tables)


class _NoColumnError(Exception):
    """Why a field is not a column."""


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path} cannot be read. Give the data dictionary as REDCap exports it, a CSV file in UTF-8.") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    names = {heading: _HEADINGS.get(heading.strip(), heading.strip()) for heading in reader.fieldnames or ()}
    if len(raw) > _MOST_BYTES or not {"field_name", "field_type"} <= set(names.values()):
        raise InputError(
            f"{path} is not a data dictionary of REDCap. Export it there, by Data Dictionary, with the headings "
            "'Variable / Field Name' and 'Field Type'."
        )
    try:
        rows = ({names[key]: (cell or "").strip() for key, cell in row.items() if key in names} for row in reader)
        return [row for row in rows if row["field_name"]]
    except csv.Error:
        raise InputError(f"{path} cannot be read as CSV. Export the data dictionary again.") from None


def _declared(name: str, row: Mapping[str, str]) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """The columns of a field: their names, tables, and codes. Raises :class:`_NoColumnError`."""
    kind, choices = row["field_type"], row.get("select_choices_or_calculations", "")
    if kind in ("yesno", "truefalse"):
        return [(name, {"boolean": True}, {})]
    if kind in ("radio", "dropdown"):
        labels = _choices(choices)
        # Labels that are the same say less than the codes.
        labels = labels if len(set(labels.values())) == len(labels) else {code: code for code in labels}
        return [(name, {"levels": list(labels.values())}, labels if list(labels) != list(labels.values()) else {})]
    if kind == "checkbox":
        # A column of its own for each choice, which REDCap calls so.
        return [(f"{name}___{code.lower().replace('-', '_')}", {"boolean": True}, {}) for code in _choices(choices)]
    validation = row.get("text_validation_type_or_show_slider_number", "")
    low, high = row.get("text_validation_min", ""), row.get("text_validation_max", "")
    if kind == "slider":
        low, high = low or str(_SLIDER[0]), high or str(_SLIDER[1])
    elif kind == "text" and validation.startswith("date"):
        if not (low and high):
            raise _NoColumnError("its first and last day are not given")
        return [(name, {"low": low[:10], "high": high[:10], "missing": INDICATOR}, {})]
    elif not (kind == "text" and validation.startswith(("number", "integer"))):
        raise _NoColumnError("it has no choices, numbers or dates" if kind != "calc" else "it is computed, without bounds")
    if not (low and high):
        raise _NoColumnError("it has no bounds")
    try:
        bounds = {"low": float(low.replace(",", ".")), "high": float(high.replace(",", "."))}
    except ValueError:
        raise _NoColumnError("its bounds are not numbers") from None
    whole = {"whole": True} if validation.startswith("integer") else {}
    return [(name, {**bounds, "missing": INDICATOR, **whole}, {})]


def _choices(text: str) -> dict[str, str]:
    """``1, Female | 2, Male`` by code. Raises :class:`_NoColumnError` without any."""
    pairs = [choice.partition(",") for choice in text.split("|") if choice.strip()]
    levels = {code.strip(): _TAG.sub("", label).strip() or code.strip() for code, _, label in pairs}
    if len(levels) < 2:
        raise _NoColumnError("it has less than two choices")
    return levels


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
