"""``quietmean study mock``: a made-up table of a study, to write and try programs before anybody is asked for data."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import output, print_json, print_lines, printable
from quietmean.cli.screens import NEXT
from quietmean.core.readable import count_of, indented
from quietmean.studies.agreement.any_study import load_any
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.data.location import Location
from quietmean.studies.outcome.mock import ENDS, NOTE, mock_rows

# Where texts begin behind their labels.
_LABEL = 10


def mock_command(
    study: Path, *, rows: int = 500, save: Annotated[Path, Parameter(name="--out")] = Path("mock.csv"), json: bool = False
) -> None:
    """Make up a table of a study, to try programs on. It costs no privacy, and everybody gets the same one.

    Parameters
    ----------
    study
        A study file, or a signed study.
    rows
        How many rows.
    save
        Where to write the table: FILE.csv or FILE.parquet. An existing file stays as it is.
    json
        One JSON document on standard output.
    """
    terms = Sealed.load(study).terms if is_signed_document(study) else load_any(study)
    table = output(save, "the made-up table", ends=ENDS)
    made = mock_rows(terms, rows)
    beside = Location.of(save).format_file
    mapping = output(beside, "the format of the made-up table") if made.format_text and beside is not None else None
    table.write(made.parquet() if save.suffix.lower() == ".parquet" else made.csv())
    if mapping is not None:
        mapping.write(made.format_text.encode())
    if json:
        print_json({"file": str(save), "rows": rows, "columns": list(made.heads), "note": NOTE})
        return
    persons = [] if mapping is None else indented("Persons", f"{mapping.path} says whose each row is.", _LABEL)
    print_lines(
        [
            *indented("Table", f"{save}: {count_of(rows, 'row')} of {', '.join(map(printable, made.heads))}", _LABEL),
            *indented("Note", NOTE, _LABEL),
            *persons,
            f"{NEXT}site data {quote(str(save))} {quote(str(study))}",
        ]
    )
