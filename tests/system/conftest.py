"""Fixtures of several files: a site with every kind of file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.site_files import Site, site_in


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as here:
        yield here
