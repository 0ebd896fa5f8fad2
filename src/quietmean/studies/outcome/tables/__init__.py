"""Tables of results as journals print them, in documents: Word, LaTeX, HTML, CSV."""

from quietmean.studies.outcome.tables.build import Line, ResultTable, tables_of
from quietmean.studies.outcome.tables.documents import FORMATS, tables_at, tables_bytes, write_tables

__all__ = ["FORMATS", "Line", "ResultTable", "tables_at", "tables_bytes", "tables_of", "write_tables"]
