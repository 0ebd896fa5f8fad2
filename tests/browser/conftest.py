"""One Chromium for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """They are run by ``make browser``, which brings what they need."""
    item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    # Not above: where no browser can be driven, tests are skipped one by one.
    from support.browsers import FLAGS, browser_path, driver

    path = browser_path()
    with driver.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()
