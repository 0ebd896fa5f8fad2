"""Three hundred mistakes that nobody listed: one sentence each, which names what is wrong and a remedy that is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quietmean.node import secrecy
from support.drawn_mistakes import Drawer
from support.mistaken import RIGHT, Desk, Mistake, faults, right
from support.site_files import site_in

SEED, COUNT = 20261129, 300


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with site_in(tmp_path_factory.mktemp("site")) as site, pytest.MonkeyPatch.context() as patch:
        for protection in ("forbid_tracing", "forbid_core_dumps"):
            patch.setattr(secrecy, protection, lambda: None)
        yield Desk(site, tmp_path_factory.mktemp("documents"))


@pytest.mark.sampled(90)
@pytest.mark.parametrize("mistake", Drawer(SEED).draw(COUNT), ids=lambda mistake: f"{mistake.kind} {mistake.line[:60]}")
def test_a_drawn_mistake_gets_one_right_sentence(mistake: Mistake, desk: Desk) -> None:
    ended = desk.end(mistake)
    assert faults(mistake, ended) == [], f"{mistake.line}\n{ended.sentence}"


@pytest.mark.parametrize("command", RIGHT)
def test_the_lines_are_right_without_a_mistake(command: str, desk: Desk) -> None:
    ended = desk.end(right(command))
    assert ended.code in ("went", 0) or ended.sentence.startswith(f"quietmean: {NOT_HERE.get(command)}"), ended


# What needs another process, or a result of several.
NOT_HERE = {
    "site status": "status file kept/store.status.json does not exist",
    "result": "kept/sums: it is not a result",
    "study start": "no join with the store",
}
