"""The data of one site, from the files, databases and data frames that people have, to arrays of numbers: one path for all.

Whether a table is accepted depends on its structure (is it a table, has it the columns, how many rows, how are numbers written)
and hardly on its values: a refusal would answer a question about them. No message has a cell or a list of headings, which
in a file without a heading are cells.
"""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.studies.data.grouped import GroupedRows as GroupedRows
    from quietmean.studies.data.grouped import records_of as records_of
    from quietmean.studies.data.location import FrameOfPersons as FrameOfPersons
    from quietmean.studies.data.location import Location as Location
    from quietmean.studies.data.location import account_name as account_name
    from quietmean.studies.data.preview import Preview as Preview
    from quietmean.studies.data.reading import Source as Source
    from quietmean.studies.data.reading import location_of as location_of
    from quietmean.studies.data.reading import query_statement as query_statement
    from quietmean.studies.data.reading import read_columns as read_columns
    from quietmean.studies.data.reading import read_table as read_table
    from quietmean.studies.data.records import Records as Records
else:
    _NAMES = {
        "grouped": "GroupedRows records_of",
        "location": "FrameOfPersons Location account_name",
        "preview": "Preview",
        "reading": "Source location_of query_statement read_columns read_table",
        "records": "Records",
    }
    _PLACES = {name: f"studies.data.{module}" for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __all__ = importer(__name__, _PLACES), list(_PLACES)
