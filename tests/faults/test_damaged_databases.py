"""A byte of a ledger, a store or an outbox that is another one: it is read as before, or called damaged, and never a defect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import numpy as np
import pytest

from faults.stories import STORIES
from quietmean.core.errors import InputError
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.ledger.people import PERSONS, Sketch
from quietmean.node.folder.slot import Outbox
from quietmean.node.storage import Store
from quietmean.privacy.charge import Charge
from quietmean.randomness import Seed

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
# Of so many bytes one is flipped in every run.
SAMPLE = 241
# What else may be said: of the bytes that say which kind of file it is, and of which release.
_KIND = "|".join(
    (
        r"is damaged \([^)]*\)\. (Restore it|Check the disk\. )",
        "is a database but no ledger|holds a table of data, not a ledger|has schema version|exists already and is not a store",
        r"(not usable|cannot be used) \(file is not a database\)",
        "belongs to another study|with other data|is of another study",
    )
)


def _ledger(folder: Path) -> Path:
    path = folder / "own.ledger"
    with Ledger.open(path, create=True) as book:
        for name in ("wards", "clinic"):
            book.set_budget(name, 4.0, 1e-5, when=NOON)
            book.claim(name, "of other persons")
            for number in (1, 2):
                study = f"{name}-{number}"
                people = Sketch(PERSONS, b"k" * 8, 0, np.arange(20, dtype=np.uint64) * 2**40, 20)
                book.reserve(name, SpendingRequest(study, f"study {number}", Charge(0.1 * number)), when=NOON, people=people)
                book.settle(study, Charge(0.2 if number == 2 and name == "wards" else 0.05), when=NOON, note="as it ended")
    return path


def _read_ledger(path: Path) -> None:
    with Ledger.open(path) as book:
        for account in book.accounts():
            assert account.charged_mu >= 0
            assert account.remaining is not None
            book.same_inputs(account.name)
            book.people_of(account.name)
            book.claims(account.name)
        for study in ("wards-1", "clinic-2"):
            book.account_of(study)


def _store(folder: Path) -> Path:
    place = folder / "told"
    place.mkdir()
    with closing(_opened(place / "own.store")) as store:
        store.save_standing(b"somewhere")
        store.keep_remarks(("a remark",))
        store.save_vote(1, b"digest", True)
        store.keep_gossip(1, b"gossip")
        store.save_log(1, b"log", b"known")
    return place / "own.store"


def _opened(path: Path) -> Store:
    return Store.open(path, "ab" * 32, np.array([0.5, 0.25]), 1.0, owner=Seed(b"o" * 32))


def _read_store(path: Path) -> None:
    with closing(_opened(path)) as store:
        store.gossip()
        store.remarks()
        store.received_logs()
        store.votes()
        store.progress()
        store.state()
        store.taken_back("in doubt")
        store.rounds_online(1)


def _outbox(folder: Path) -> Path:
    STORIES["outbox"].live(folder, lambda text: None)
    return folder / "own.outbox"


def _read_outbox(path: Path) -> None:
    with closing(Outbox(path, "session", 0)) as kept:
        list(kept.waiting())
        for number in range(4):
            kept.last_request(1, b"asked %d" % number)
        kept.answered(1)
        kept.next_number(1)


KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], None]]] = {
    "ledger": (_ledger, _read_ledger),
    "store": (_store, _read_store),
    "outbox": (_outbox, _read_outbox),
}


def _changes(content: bytes, step: int, first: int) -> Iterator[tuple[int, bytes]]:
    """Every so many bytes: one bit of it, and all bits of it, are others."""
    random = Random(step)
    for place in range(first, len(content), step):
        for mask in (0xFF, 1 << random.randrange(8)):
            yield place, content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sample", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_byte_that_is_another_one(kind: str, every: bool, tmp_path: Path) -> None:
    make, read = KINDS[kind]
    path = make(tmp_path)
    content = path.read_bytes()
    read(path)
    wrong, damaged = list[str](), 0
    for place, changed in _changes(content, 5 if every else SAMPLE, 0):
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
        path.write_bytes(changed)
        try:
            read(path)
        except InputError as error:
            damaged += 1
            if not re.search(_KIND, str(error)):
                wrong.append(f"byte {place}: {error}")
        except Exception as error:
            wrong.append(f"byte {place}: {type(error).__name__}: {error}")
    assert damaged
    assert not wrong, f"{len(wrong)} of {len(content)} bytes:\n" + "\n".join(wrong)
