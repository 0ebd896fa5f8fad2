"""``quietmean study synthesize``: made-up rows that are like the records of a study that has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.common import execution_or_newest
from quietmean.cli.console import output, print_json, print_lines, printable
from quietmean.core.file_kinds import FileKind, kind_of_file, read_json, refuse_other
from quietmean.core.readable import count_of, indented
from quietmean.studies.outcome.mock import ENDS
from quietmean.studies.outcome.synthetic import synthetic_rows

# Where texts begin behind their labels.
_LABEL = 10


def synthesize_command(
    receipt: Path | None = None,
    /,
    *,
    rows: int | None = None,
    save: Annotated[Path, Parameter(name="--out")] = Path("synthetic.csv"),
    json: bool = False,
) -> None:
    """Make up rows that are like the records of a study, of the tables that its synthetic-table released.

    It costs no privacy: all is in the receipt, and everybody makes the same rows of it. Without a file, of the newest run in this
    folder.

    Parameters
    ----------
    receipt
        A receipt whose study asked for a synthetic-table.
    rows
        How many rows; by default as many as there are records, or as the released count says.
    save
        Where to write the table: FILE.csv or FILE.parquet. An existing file stays as it is.
    json
        One JSON document on standard output.
    """
    path = execution_or_newest(receipt)
    refuse_other(kind_of_file(path), f"file {path}", FileKind.RECEIPT)
    document = read_json(path, FileKind.RECEIPT)
    table = output(save, "the made-up table", ends=ENDS)
    made = synthetic_rows(document, rows)
    table.write(made.parquet() if save.suffix.lower() == ".parquet" else made.csv())
    if json:
        print_json({"file": str(save), **made.to_json()})
        return
    text = f"{save}: {count_of(made.made, 'synthetic row')} of {', '.join(map(printable, made.heads))}"
    print_lines([*indented("Table", text, _LABEL), *made.lines()])
