"""Whole studies of real processes, of which one has a machine that fails or dies at any of its writes: all have one result.

Seeds are drawn from QUIETMEAN_SEED on, QUIETMEAN_SEEDS of them: ``make chaos``. Of a failing seed it is said which of its faults
fail alone.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from support.injected import Rule, places_of_faults, require_all_seen
from support.ports import reserved
from support.struck_study import Commands, StruckStudy, prepared_commands

PROTOCOLS = ("cordp-dme", "secagg", "gopa", "muffliato", "local-dp")
FILES = ("", "own.store", "own.ledger", "data", "receipt.json", "people.key")
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)
# Of one party of a study; more are harmless, and never come.
PLACES = 460
# Writes into the store itself: SQLite copies its log there.
COPIES = 22
FIRST, SEEDS = int(os.environ.get("QUIETMEAN_SEED", "0")), int(os.environ.get("QUIETMEAN_SEEDS", "12"))

Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with prepared_commands() as made, reserved(3) as ports:
        folder = tmp_path_factory.mktemp("prepared")
        study = StruckStudy(made, folder / "first", ports)
        assert study.run(Rule("keep", study.place), modules=folder / "modules") == []
        made_before = [study.place / f"{name}" for name in ("south.key", "roster.toml", "study.toml", "ages.csv", "policy.toml")]
        assert {"own.store", "own.ledger", "receipt.json"} <= {
            Path(path).name for path in require_all_seen(study.calls(), study.place, made_before)
        }
        # Faults are drawn among places that there are.
        calls = places_of_faults(study.calls())
        assert 0.7 * PLACES < len(calls) < 1.3 * PLACES
        assert len([call for call in calls if call.kind == "write" and call.path.endswith("/own.store")]) >= COPIES
        made.ask({"prepare": (folder / "modules").read_text().split()})
        yield made


def struck(commands: Commands, folder: Path, protocol: str, rules: Callable[[Path], list[Rule]]) -> list[str]:
    with reserved(3) as ports:
        study = StruckStudy(commands, folder, ports, protocol)
        wrong = study.run(*rules(study.place))
    if not wrong:
        shutil.rmtree(folder)
    return wrong


@pytest.mark.sampled(1)
@pytest.mark.parametrize("action", ["die", "fail"])
@pytest.mark.parametrize("place", range(COPIES))
def test_at_each_write_into_a_store(place: int, action: str, commands: Commands, tmp_path: Path) -> None:
    """A store was "no store" for ever after a full disk or a death there."""

    def rules(own: Path) -> list[Rule]:
        return [Rule(action, own / "own.store$", place, kind="write", argument=errno.ENOSPC)]

    assert struck(commands, tmp_path / "study", "cordp-dme", rules) == []


def drawn(random: Random, own: Path) -> list[Rule]:
    """One to three faults."""
    rules = []
    for _ in range(random.choice((1, 1, 2, 3))):
        action = random.choice(("die", "die", "fail", "fail", "fail", "short"))
        times = random.choice((1, 1, 3, 10**9)) if action == "fail" else 1
        prefix, kind = own / random.choice(FILES), random.choice(("any", "any", "sync", "create", "write"))
        most = PLACES if prefix == own and kind == "any" else PLACES // 5
        rules.append(Rule(action, prefix, random.randrange(most), times, kind, random.choice(ERRORS)))
    return rules


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_a_seed(seed: int, commands: Commands, tmp_path: Path) -> None:
    protocol = Random(seed).choice(PROTOCOLS)

    def those(*places: int) -> Callable[[Path], list[Rule]]:
        return lambda own: [rule for place, rule in enumerate(drawn(Random(f"{seed}"), own)) if place in places or not places]

    if wrong := struck(commands, tmp_path / "study", protocol, those()):
        lines = [rule.line() for rule in those()(Path())]
        each = range(len(lines) if len(lines) > 1 else 0)
        alone = [lines[place] for place in each if struck(commands, tmp_path / str(place), protocol, those(place))]
        raise AssertionError(f"{protocol}, {lines}, alone {alone}:\n" + "\n".join(wrong))
