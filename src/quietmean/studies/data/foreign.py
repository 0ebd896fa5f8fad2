"""Files of SPSS, Stata and SAS."""

from __future__ import annotations

from collections.abc import Collection

from quietmean.core import foreign
from quietmean.core.extras import import_extra
from quietmean.studies.data.frames import columns_apart
from quietmean.studies.data.location import Location
from quietmean.studies.data.table import Pieces


def read_foreign(location: Location, wanted: Collection[str] | None, kind: str) -> Pieces:
    """The ``wanted`` columns, or all; codes are codes, whatever labels the file has for them.

    Raises :class:`InputError` if it cannot be read, or its library is not there.
    """
    location.only(f"a file of {kind}", ())
    import_extra("pyreadstat", "foreign", f"{location.name} is a file of {kind}, and reading it")
    return columns_apart(foreign, kind, f"a damaged file of {kind}", location, wanted)
