"""What the reference lists is there: a page of the documentation is not needed to see that a name is gone."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference.md"
LISTED = re.findall(r"^\.\. auto(module|class|function):: (\S+)\n((?:   :.*\n)*)", PAGE.read_text(), re.MULTILINE)


def test_there_is_something_to_look_at() -> None:
    assert len(LISTED) > 50


@pytest.mark.parametrize(("name", "options"), [(name, options) for _, name, options in LISTED])
def test_names_and_members_exist(name: str, options: str) -> None:
    documented = resolve_name(name)
    members = re.search(r":members: (\S.*)", options)
    for member in members[1].split(", ") if members else ():
        assert hasattr(documented, member), member
