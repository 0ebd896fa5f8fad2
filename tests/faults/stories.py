"""What writes files that must outlive a process, one story a kind of file, told by processes that a fault may strike anywhere.

``python -m faults.stories`` reads orders, a line of JSON each, and makes a copy of itself for each of them: a life. A life tells
what it did as soon as nobody may take that back; the next one goes on from what is on the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import QuietmeanError, StorageError
from quietmean.core.outage import outage_of
from quietmean.core.output import Output, has_fields
from quietmean.core.party import Message, Release, Step
from quietmean.core.portability import make_folders, owner_only, replace_durably
from quietmean.drop import DropBox
from quietmean.drop.box import WholeContribution
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.node import Identity
from quietmean.node.folder.place import parse_folder
from quietmean.node.folder.slot import Outbox, Slot, SlotKind
from quietmean.node.net import encode_vector
from quietmean.node.phase import Phase
from quietmean.node.storage import Store
from quietmean.privacy.charge import Charge
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import ContributionError, read_whole
from quietmean.randomness import Seed
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.party.accounts import people_key
from quietmean.studies.party.audit import AuditLog, Auditor, Event, verify
from quietmean.studies.party.executions import Register
from quietmean.studies.party.member_holdings import MemberHoldings
from support.committee_world import CommitteeWorld, identity

# Whoever is told something cannot be told that it was not so.
Told = Callable[[str], None]
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
STUDY = "ab" * 32
# Above what a store keeps in its database.
LONG = 10_000
_WORLD: list[tuple[CommitteeWorld, list[bytes]]] = []


def world() -> tuple[CommitteeWorld, list[bytes]]:
    """A committee, and contributions to it, which are the same in every life."""
    if not _WORLD:
        made = CommitteeWorld(Committee(4), contributors=4)
        _WORLD.append((made, [made.contribution(number) for number in range(4)]))
    return _WORLD[0]


@dataclass(frozen=True)
class Story:
    """``live`` goes on from whatever ``place`` holds, to the end; ``holds``: what of what it tells is so there."""

    live: Callable[[Path, Told], object]
    holds: Callable[[Path], set[str]]


# --- a store ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    round: int
    held: np.ndarray[tuple[int], np.dtype[np.float64]]


def _vector(round_: int, sender: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.full(LONG if round_ == 2 else 2, 10.0 * round_ + sender)


def _opened(place: Path) -> Store:
    return Store.open(place / "own.store", STUDY, np.array([0.5, 0.25]), 1.0, lambda: Seed(b"n" * 32), owner=Seed(b"o" * 32))


@contextlib.contextmanager
def _store(place: Path) -> Iterator[Store]:
    store = _opened(place)
    try:
        yield store
    finally:
        store.close()


def _live_store(place: Path, told: Told) -> object:
    with _store(place) as store:
        told("open")
        for round_ in (1, 2, 3) if store.result() is None else ():
            state = store.state()
            if state is None or state[1] < round_:
                own = Message(0, (1, 2), round_, _vector(round_, 0), 0.5)
                release = Release(_vector(round_, 0), 1.0) if round_ == 3 else None
                store.record(Phase.MIXING, Step(_State(round_, _vector(round_, 9)), (own,), release))
            told(f"sent {round_}")
            for sender in (1, 2):
                came = Message(sender, (0,), round_, _vector(round_, sender), 0.25)
                if not store.has_accepted(Phase.MIXING, round_, sender):
                    store.accept(Phase.MIXING, came, encode_vector(came.vector), b"gossip")
                told(f"accepted {round_} {sender}")
            sums = [float(message.vector.sum()) for message in store.received(Phase.MIXING, round_, 0)]
            assert sums == [float(_vector(round_, sender).sum()) for sender in (1, 2)], sums
            assert store.outgoing(Phase.MIXING, round_)[1].payload == encode_vector(_vector(round_, 0))
        if store.result() is None:
            store.finish(Phase.MIXING, b"the result")
        told("finished")
        return [str(store.result()), store.nonce.hex(), float(store.required_release(Phase.MIXING).vector[0])]


def _store_holds(place: Path) -> set[str]:
    with _store(place) as store:
        accepted = {f"accepted {round_} {sender}" for round_, sender in store.arrived_here(Phase.MIXING)}
        if store.result() is not None:
            every = {f"sent {round_}" for round_ in (1, 2, 3)}
            return {"open", "finished", *accepted, *every}
        state = store.state()
        return {"open", *accepted, *(f"sent {round_}" for round_ in range(1, 1 + (state[1] if state else 0)))}


# --- a ledger --------------------------------------------------------------------------------------------------------------


def _live_ledger(place: Path, told: Told) -> object:
    with Ledger.open(place / "own.ledger", create=True) as book:
        book.set_budget("wards", 4.0, 1e-5, when=NOON, unit=PrivacyUnit.RECORD)
        told("budget")
        for number in (1, 2):
            book.reserve("wards", SpendingRequest(f"s{number}", f"study {number}", Charge(0.1 * number)), when=NOON)
            told(f"reserved {number}")
            book.bind(f"s{number}", b"only this")
            told(f"bound {number}")
            book.settle(f"s{number}", Charge(0.05 * number), when=NOON)
            told(f"settled {number}")
        account = book.account("wards")
        return [[entry.study, entry.charged.mu, entry.settled] for entry in account.entries]


def _ledger_holds(place: Path) -> set[str]:
    with Ledger.open(place / "own.ledger", create=True) as book:
        if not book.accounts():
            return set()
        found = {"budget"}
        for entry in book.account("wards").entries:
            found.add(f"reserved {entry.study[1:]}")
            found |= {f"settled {entry.study[1:]}"} if entry.settled else set()
            bound = book._database.row("SELECT 1 FROM fact WHERE name = ?", f"bound {entry.study}")
            found |= {f"bound {entry.study[1:]}"} if bound is not None else set()
        return found


# --- an audit log ------------------------------------------------------------------------------------------------------------


def _auditor(place: Path) -> Auditor:
    return Auditor(AuditLog(place / "site" / "audit.jsonl"), identity("north"), "north", "ages", "c" * 64)


def _live_log(place: Path, told: Told) -> object:
    auditor = _auditor(place)
    for number in (1, 2, 3):
        before = _logged(place)
        if str(number) not in before:
            auditor.write(Event.STARTED, {"number": number})
        told(str(number))
    found = verify(auditor.log, {})
    assert found.faults == (), found.faults
    return sorted(_logged(place))


def _logged(place: Path) -> set[str]:
    log = _auditor(place).log
    return {str(one.about["number"]) for one in verify(log, {}).entries} if log.path.exists() else set()


def _log_holds(place: Path) -> set[str]:
    log = _auditor(place).log
    assert not log.path.exists() or verify(log, {}).faults == ()
    return _logged(place)


# --- messages in a folder ------------------------------------------------------------------------------------------------------


def _live_outbox(place: Path, told: Told) -> object:
    make_folders(place / "shared")
    shared = parse_folder(str(place / "shared"))("f" * 64)
    kept = Outbox(place / "own.outbox", "session", 0)
    try:
        for number in (1, 2, 3):
            slot = Slot(SlotKind.REQUEST, number, 0, 1)
            if kept.next_number(1) <= number:
                kept.add(slot, bytes([number]) * 9000, b"asked %d" % number)
            told(f"asked {number}")
            shared.put("1", f"{number}.msg", bytes([number]) * 9000)
            told(f"put {number}")
            if number < 3:
                kept.received(slot, b"answer %d" % number)
                told(f"answered {number}")
        return [[slot.number, len(file)] for slot, file in kept.waiting()]
    finally:
        kept.close()


def _outbox_holds(place: Path) -> set[str]:
    kept, found = Outbox(place / "own.outbox", "session", 0), set()
    for number in (1, 2, 3):
        last = kept.last_request(1, b"asked %d" % number)
        if last is not None:
            found.add(f"asked {number}")
            found |= {f"answered {number}"} if last[1] else set()
        path = place / "shared" / ("f" * 32) / "1" / f"{number}.msg"
        if path.exists():
            assert path.read_bytes() == bytes([number]) * 9000
            found.add(f"put {number}")
    kept.close()
    return found


# --- a drop's box --------------------------------------------------------------------------------------------------------------


def _live_box(place: Path, told: Told) -> object:
    made, files = world()
    box = DropBox.open(place / "box", made.session)
    try:
        for number, raw in enumerate(files):
            whole = WholeContribution(*read_whole(made.session, raw))
            for tries in reversed(range(3)):
                try:
                    (answer,) = box.add([whole], 10.0)
                except OSError:
                    # It is sent again.
                    if not tries:
                        raise
                    continue
                assert not isinstance(answer, ContributionError)
                told(f"took {number} {answer.digest.hex()}")
                break
        return len(box)
    finally:
        box.close()


def _box_holds(place: Path) -> set[str]:
    """What all members read."""
    made, files = world()
    box = DropBox.open(place / "box", made.session)
    every = set()
    for number, raw in enumerate(files):
        header, _ = read_whole(made.session, raw)
        if box.first(header.dealer) is not None:
            every.add(f"took {number} {header.digest.hex()}")
    box.close()
    for member in range(4):
        path = place / "held"
        if any((place / "box").glob("drop-*")) and every:
            taken = MemberHoldings.take(path, made.session, member, made.opener(member), place / "box", 1e6)
            digests = {one.digest.hex() for one in taken}
            path.unlink()
            every = {text for text in every if text.split()[2] in digests}
    return every


# --- files that are written whole --------------------------------------------------------------------------------------------


def _files(place: Path) -> dict[str, Callable[[], object]]:
    """Each by its name, with what writes it, as often as it is asked to."""
    made, files = world()
    receipt = {"certify": "x" * 700, "origin": 1}

    def key() -> None:
        if not (place / "own.key").exists():
            identity("own").save(place / "own.key")
        assert Identity.load(place / "own.key").public_key == identity("own").public_key

    def holdings() -> None:
        if MemberHoldings.load(place / "own.held", made.session) is None:
            folder = place.parent / "contributions"
            folder.mkdir(exist_ok=True)
            for number, raw in enumerate(files):
                (folder / f"c{number}").write_bytes(raw)
            MemberHoldings.take(place / "own.held", made.session, 0, made.opener(0), folder, 1e18)

    return {
        "receipt.json": lambda: Output(place / "receipt.json", "the receipt", own=has_fields("certify")).write_json(receipt),
        "own.key": key,
        "people.key": lambda: people_key(place),
        "register/study": lambda: _registered(place),
        "distrusted": lambda: Distrusted(place / "distrusted").add(identity("bad").public_key),
        "session": lambda: replace_durably(place / "session", b"where it is" * 100),
        "own.held": holdings,
    }


def _registered(place: Path) -> None:
    register = Register(place / "register")
    with register.alone():
        register.put("study", b"d" * 32, "north")


def _live_files(place: Path, told: Told) -> object:
    for name, write in _files(place).items():
        write()
        content = _content_of(place, name)
        told(f"{name} {content}")
    return sorted(name for name in _files(place) if _content_of(place, name))


def _content_of(place: Path, name: str) -> str:
    path = place / name
    return path.read_bytes().hex()[:64] if path.is_file() else ""


def _files_hold(place: Path) -> set[str]:
    return {f"{name} {_content_of(place, name)}" for name in _files(place)}


STORIES = {
    "store": Story(_live_store, _store_holds),
    "ledger": Story(_live_ledger, _ledger_holds),
    "audit log": Story(_live_log, _log_holds),
    "outbox": Story(_live_outbox, _outbox_holds),
    "box": Story(_live_box, _box_holds),
    "files": Story(_live_files, _files_hold),
}


# --- lives -----------------------------------------------------------------------------------------------------------------


def _life(order: dict[str, str]) -> int:
    """0 with what was found, or the exit code of a command that ends so."""
    place, say = Path(order["place"]), Path(order["say"])
    handle = os.open(order["told"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    owner_only(handle)
    story = STORIES[order["story"]]

    def told(text: str) -> None:
        os.write(handle, f"{text}\n".encode())

    os.environ["QUIETMEAN_FAULTS"] = order["faults"]
    try:
        found = story.live(place, told) if order["do"] == "live" else sorted(story.holds(place))
    except BaseException as error:
        os.environ["QUIETMEAN_FAULTS"] = ""
        # As the command does with what nobody else takes.
        outage = error if isinstance(error, StorageError) else outage_of(error, place) if isinstance(error, Exception) else None
        code = error.exit_code if isinstance(error, QuietmeanError) else 75 if outage is not None else 1
        say.write_text(json.dumps({"error": str(outage or error), "trace": traceback.format_exc()}))
        return code
    os.environ["QUIETMEAN_FAULTS"] = ""
    say.write_text(json.dumps({"found": found}))
    return 0


def main() -> None:
    """Until the end of the orders."""
    world()
    for name in ("north", "own", "bad"):
        identity(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _life(json.loads(line))
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
