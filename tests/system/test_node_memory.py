"""What another process finds in the memory of a real party: its value and its seed as long as they are needed, not after that."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError
from quietmean.core.grid import to_units
from quietmean.core.party import Vector
from quietmean.node import Identity, NodeSettings, PlannedValue, Roster, RosterEntry, Waits, run_party
from quietmean.node.local import run_local
from quietmean.node.local.child import read_value
from quietmean.node.net import tls
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import get_protocol
from quietmean.protocols.inca import IncA
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import insecure_seed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc to look into another process")

PHASES = ("mixing", "dissemination", "closing", "done")
# A party that tells its seed as text (which is not how it is held) and stops where the scanner is to look at it.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from quietmean.node.local import child
from quietmean.node.storage import Store

def open_and_tell(cls, *arguments, **more):
    opened = open_store(cls, *arguments, **more)
    tell({"event": "seed", "seed": opened.seed.secret.hex()})
    return opened

def tell_and_stop(event):
    tell(event | {"pid": os.getpid()})
    phase = event.get("phase", event["event"])
    if phase in PHASES and phase not in seen:
        seen.add(phase)
        os.kill(os.getpid(), signal.SIGSTOP)

seen, tell, open_store = set(), child._print, Store.open.__func__
child._print, Store.open = tell_and_stop, classmethod(open_and_tell)
sys.exit(child.main(Path(sys.argv[-2]), int(sys.argv[-1])))
""".replace("PHASES", repr(PHASES))


def memory_holds(pid: int, needle: bytes) -> int:
    """How often the writable memory of a process contains the bytes."""
    found = 0
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            if "rw" in rights:
                begin, end = (int(part, 16) for part in place.split("-"))
                memory.seek(begin)
                found += memory.read(end - begin).count(needle)
    return found


def wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() < deadline
        time.sleep(0.005)


@dataclass
class Scanner:
    """Looks at party 0 at the beginning of each phase; the finds are (value, seed)."""

    values: Sequence[bytes]
    seed: bytes = b""
    finds: dict[str, tuple[int, int]] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, name: str, event: dict[str, Any]) -> None:
        if event["event"] == "seed":
            self.seed = bytes.fromhex(event["seed"]) if name == "party-0" else self.seed
            return
        phase = event.get("phase", event["event"])
        if phase not in PHASES or (name, phase) in self.seen:
            return
        self.seen.add((name, phase))
        wait_until_stopped(event["pid"])
        if name == "party-0":
            self.finds[phase] = (
                sum(memory_holds(event["pid"], value) for value in self.values),
                memory_holds(event["pid"], self.seed),
            )
        os.kill(event["pid"], signal.SIGCONT)


def some_values(parties: int, dimension: int) -> Vector:
    """Full of digits, so that none of them is in memory by accident."""
    values: Vector = BitStream(insecure_seed(7, "memory")).uniform(parties * dimension).reshape(parties, dimension)
    scaled: Vector = values / np.sqrt(dimension)
    return scaled


SLOW = (("inca", 1000), ("secagg", 3), ("local-dp", 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "dimension"), [("inca", 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_the_value_is_gone_after_mixing_and_the_seed_at_the_end(tmp_path: Path, protocol: str, dimension: int) -> None:
    values = some_values(3, dimension)
    plan = calibrate(Target(parties=3, epsilon=1.0, delta=1e-6, dimension=dimension), get_protocol(protocol)())
    # One number in full, 64 bits that are nowhere else: as it was given, and as it came through the door. All as whole steps.
    rounded = plan.admit(values[0]).vector
    forms = [values[0, :1].tobytes(), *([rounded[:1].tobytes()] if plan.grid else [])]
    scanner = Scanner([*forms, *([to_units(rounded, plan.grid).tobytes()] if plan.grid else [])])
    more: dict[str, Any] = {"round_timeout": 60.0, "start_timeout": 120.0, "program": ("-c", PROGRAM)}
    outcome = asyncio.run(run_local(plan, values, tmp_path / "run", report=scanner, **more))
    assert sorted(outcome.results) == [0, 1, 2]
    print(scanner.finds)
    # While it is needed it is found: the scanner works.
    assert min(scanner.finds["mixing"]) >= 1
    for phase in ("dissemination", "closing", "done"):
        # Protocols that publish nothing before the end have no dissemination.
        assert scanner.finds.get(phase, (0, 0))[0] == 0, phase
    assert scanner.finds["done"][1] == 0


def settings(tmp_path: Path, *, wiped: bool = False, **more: Any) -> NodeSettings:
    identities = [Identity.generate() for _ in range(2)]
    entries = [RosterEntry(f"p{k}", ("127.0.0.1", 7000 + k), identity.public_key) for k, identity in enumerate(identities)]
    plan = calibrate(Target(parties=2, epsilon=1.0, delta=1e-6, dimension=2), IncA())
    given: dict[str, Any] = {"store": tmp_path / "store", "waits": Waits(start=0.05)}
    return NodeSettings(
        identity=identities[0],
        roster=Roster(tuple(entries)),
        brought=PlannedValue(plan, plan.admit(np.array([0.25, 0.5])), wiped),
        **(given | more),
    )


@pytest.mark.slow
@pytest.mark.parametrize("wiped", [False, True])
def test_an_array_is_wiped_only_if_that_was_asked_for_and_then_always(tmp_path: Path, wiped: bool) -> None:
    # The study cannot even begin.
    doomed = settings(tmp_path, wiped=wiped, store=tmp_path / "none" / "store")
    with pytest.raises(InputError):
        asyncio.run(run_party(doomed))
    assert doomed.brought.vector.tolist() == ([0.0, 0.0] if wiped else [0.25, 0.5])


def test_a_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    values = some_values(1, 70_000)[0]
    (tmp_path / "value").write_bytes(values.astype("<f8").tobytes())
    np.testing.assert_array_equal(read_value(tmp_path / "value"), values)


def test_the_key_of_a_leaf_is_in_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with tls._file_of(b"leaf") as file:
        assert file.read_bytes() == b"leaf"
        assert file.parent == Path("/proc/self/fd")
    # Where that cannot be had: in a folder of the owner's, wiped before it is deleted.
    monkeypatch.setattr(tls, "_DESCRIPTORS", Path("/nowhere"))
    with tls._file_of(b"leaf") as file:
        assert file.read_bytes() == b"leaf"
        assert file.parent.stat().st_mode & 0o777 == 0o700
        kept = file.open("rb")
    with kept:
        assert kept.read() == bytes(4)
    assert not file.exists()


def test_no_core_file_and_no_look_from_outside() -> None:
    code = (
        "import resource, ctypes; from quietmean.node.secrecy import *; "
        "forbid_core_dumps(); forbid_tracing(); "
        "print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )

    def allow() -> None:
        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=allow)
    # The soft and the hard limit, and PR_GET_DUMPABLE.
    assert done.stdout == "(0, 0) 0\n"
