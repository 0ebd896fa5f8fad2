"""Tables that are written to files."""

from __future__ import annotations

from pathlib import Path

from quietmean.core.output import FROM_PYTHON, Output
from quietmean.core.tables import Tabular, csv_bytes


class TableFile(Tabular):
    """A result that is a table, also as a CSV file."""

    def to_csv(self, path: str | Path, *, force: bool = False) -> None:
        """The rows as a CSV file; with ``force`` in the place of an earlier one with the same heads.

        Raises :class:`InputError` for another file that is there.
        """
        rows = self.rows()
        content = csv_bytes(rows, list(self.kinds() or (rows[0] if rows else ())))
        head = content.partition(b"\n")[0] + b"\n"
        output = Output(
            Path(path), "the table", "", kind=lambda there: there.startswith(head), force=force, saying_so=FROM_PYTHON
        )
        output.write(content)
