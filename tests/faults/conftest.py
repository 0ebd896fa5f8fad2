"""What tests of faults share: preparing it takes seconds, once in each process of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.struck_study import Commands
from support.struck_ways import prepared_parties


@pytest.fixture(scope="session")
def parties() -> Iterator[Commands]:
    """A prepared process whose copies take part in each way in, or serve as a drop."""
    with prepared_parties() as made:
        made.ask({"prepare": ["quietmean.drop", "quietmean.cli.servers", "support.watched"]})
        yield made
