"""The picture and the table of errors against messages are made from the rows beside them, and rows are what plans say."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
import pytest

from support.programs import module_of

tool = module_of("tools", "error_per_message")


def test_the_table_is_what_the_rows_say(tool: ModuleType) -> None:
    text = tool.PAGE.read_text(encoding="utf-8")
    assert tool.page(text, tool.read()) == text
    assert tool.page(text, tool.read()[1:]) != text


def test_the_picture_is_of_the_rows(tool: ModuleType, tmp_path: Path) -> None:
    """Byte for byte with the same version of matplotlib."""
    kept = tool.PICTURE.read_bytes()
    assert hashlib.sha256(tool.ROWS.read_bytes()).hexdigest().encode() in kept
    tool.draw(tool.read(), tmp_path / "new.png")
    if f"matplotlib {mpl.__version__}".encode() in kept:
        assert (tmp_path / "new.png").read_bytes() == kept


def test_every_protocol_has_a_row_for_each_number_of_parties(tool: ModuleType) -> None:
    found = {(int(row["parties"]), row["protocol"]) for row in tool.read()}
    for parties in tool.PARTIES:
        missing = set(tool.NAMES) - {name for number, name in found if number == parties}
        # Where a plan promises by default there is no other one. Bounds of IncA beyond ten parties are yet to be planned.
        assert missing == ({tool.HAPPENED} if parties == 10 else {"inca"}), parties


@pytest.mark.parametrize("parties", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_plans_that_are_made_at_once_say_the_same(tool: ModuleType, parties: int) -> None:
    quick = [name for name in tool.PROTOCOLS if name not in ("inca", "consensus")]
    rows = [row for row in tool.read() if int(row["parties"]) == parties]
    for row in tool.measured(parties, None, quick):
        assert row in rows, "run python tools/error_per_message.py"
