"""The data of one site, from the files, databases and data frames that people have, to arrays of numbers: one path for all.

Whether a table is accepted depends on its structure (is it a table, has it the columns, how many rows, how are numbers written)
and hardly on its values: a refusal would answer a question about them. No message has a cell or a list of headings, which
in a file without a heading are cells.
"""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.studies.data.grouped import GroupedRows
    from quietmean.studies.data.grouped_frames import records_of
    from quietmean.studies.data.location import Location, account_name
    from quietmean.studies.data.mapping import FrameOfPersons
    from quietmean.studies.data.preview import Preview
    from quietmean.studies.data.reading import Source, location_of, read_columns, read_table
    from quietmean.studies.data.records import Records
else:
    __getattr__ = importer(
        __name__,
        {
            "FrameOfPersons": "studies.data.mapping",
            "GroupedRows": "studies.data.grouped",
            "Location": "studies.data.location",
            "Preview": "studies.data.preview",
            "Records": "studies.data.records",
            "Source": "studies.data.reading",
            "account_name": "studies.data.location",
            "location_of": "studies.data.reading",
            "read_columns": "studies.data.reading",
            "read_table": "studies.data.reading",
            "records_of": "studies.data.grouped_frames",
        },
    )

__all__ = [
    "FrameOfPersons",
    "GroupedRows",
    "Location",
    "Preview",
    "Records",
    "Source",
    "account_name",
    "location_of",
    "read_columns",
    "read_table",
    "records_of",
]
