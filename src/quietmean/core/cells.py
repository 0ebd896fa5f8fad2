"""What one cell of any library holds, as plain values: nothing else of its source is looked at."""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

# The text of a cell that has none; and the longest text that is kept: a longer one cannot be a number, date or level.
STRANGE = "\N{REPLACEMENT CHARACTER}"
LONGEST_CELL = 2**15
# More digits than people write: a number in single precision has them, in a type of twice as many.
_SINGLE_DIGITS = 12
# The largest items of numpy, in bytes, whose numbers Python has, too.
_LARGEST_ITEM = 8


def is_empty(cell: Any) -> bool:
    """Does a library say that nothing is in it? Some have values that are not equal to themselves, or to nothing at all."""
    if cell is None or cell is STRANGE:
        return cell is None
    try:
        return bool(cell != cell)
    # pandas' NA, of which no comparison is true or false; arrays; and whatever else a cell does.
    except Exception:
        return not isinstance(cell, Iterable)


def plain(cell: Any) -> Any:
    """What is in a cell of any library: None, a truth value, whole number, float, Decimal, date, time or text; or STRANGE.

    Bytes are a text, as they are in a file of text. It never fails, and looks at nothing but the cell.
    """
    if isinstance(cell, str | bool | int | float):
        return None if cell != cell else cell
    try:
        if is_empty(cell):
            return None
        if isinstance(cell, np.datetime64):
            day = cell.astype("datetime64[D]").item()
            return day if isinstance(day, datetime.date) else STRANGE
        if isinstance(cell, np.bool_ | np.integer | np.floating) and not isinstance(cell, np.timedelta64):
            return cell.item() if cell.dtype.itemsize <= _LARGEST_ITEM else float(cell)
        if isinstance(cell, complex | np.complexfloating):
            return float(cell.real) if cell.imag == 0 else STRANGE
        if isinstance(cell, bytes):
            return text_of_bytes(cell)
        return cell if isinstance(cell, Decimal | datetime.date) else str(cell)
    # Any other object is one cell, whatever its text.
    except Exception:
        return STRANGE


def cell_text(cell: str) -> str:
    """A cell of a text; one that is not UTF-8 is Windows-1252, of which Latin-1 is a part."""
    try:
        if not cell.isascii():
            cell.encode("utf-8")
    except UnicodeEncodeError:
        # Halves of a sign that mean no byte, as an escape of JSON may make them, are not text.
        whole = "".join(STRANGE if "\ud800" <= sign < "\udc80" or "\udcff" < sign <= "\udfff" else sign for sign in cell)
        return whole.encode("utf-8", errors="surrogateescape").decode("cp1252", errors="replace")
    return cell


def text_of_bytes(cell: bytes) -> str:
    """A text that a source has as bytes, by the same rule."""
    return cell_text(cell.decode("utf-8", errors="surrogateescape"))


def plain_name(name: object) -> str:
    """A heading as it is compared: in Unicode's form NFC, without blanks around it; a number as it is shown."""
    if name is None:
        return ""
    text = f"{name:.0f}" if isinstance(name, float) and name.is_integer() else str(name)
    return unicodedata.normalize("NFC", text).strip()


def in_single(number: float) -> float:
    """Return the float that single precision makes of a number, where nobody would write it: 0.1 as 0.10000000149011612.

    Any other number is itself, as one of these would be another number that people write.
    """
    with np.errstate(over="ignore"):
        single = float(np.float32(number))
    digits = repr(single).strip("-").replace(".", "").partition("e")[0].strip("0")
    return single if math.isfinite(single) and len(digits) > _SINGLE_DIGITS else number
