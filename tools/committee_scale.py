"""Sessions of a committee as large as one machine holds: contributions by the code of ``send``, members as processes.

``python tools/committee_scale.py CONTRIBUTORS DIMENSION MEMBERS COLLUDING GONE [--verified] [--liars N]`` prints one row of what
was measured, as JSON. Members are ``quietmean join`` with its default options, sockets and stores; GONE of them are killed for
good at random instants of the session, one more is killed and started again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from quietmean.randomness import BitStream, Seed
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.party import by_file
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.committee_liars import ALWAYS, VERIFIED, Liar
from support.committee_study import CommitteeStudy, soon
from support.ports import reserved

# A pay lies between 0 and HIGH and counts in one bin; besides bins there are numbers of those below, above, and missing.
EPSILON, HIGH, OUTSIDE = 4.0, 1000.0, 3
# So long a session may take after the deadline, and so often a member's words are looked at (s).
MOST, LOOK = 3000.0, 0.05
# Members are killed when they say this: who is gone while they agree is left out by the others, and one more would be too many.
PHASE = "mixing"


@dataclass(frozen=True)
class Size:
    contributors: int
    dimension: int
    members: int
    colluding: int
    gone: int
    verified: bool = False
    liars: int = 0


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


@dataclass
class Member:
    """A member's process, and what it used: of all its processes, if it was killed and started again."""

    study: CommitteeStudy
    name: str
    box: Path
    process: subprocess.Popen[bytes] | None = None
    seconds: float = 0.0
    largest: int = 0

    def start(self) -> None:
        folder = self.study.folder
        own = {"XDG_CONFIG_HOME": str(folder / f"conf {self.name}"), "XDG_DATA_HOME": str(folder / f"data {self.name}")}
        line = ["join", str(self.study.path), "--key", str(self.study.key(self.name)), "--contributions", str(self.box)]
        with self.out.open("wb") as out, self.err.open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quietmean", *line, "--json"], stdout=out, stderr=err, env=os.environ | own
            )

    @property
    def out(self) -> Path:
        return self.study.folder / f"{self.name}.out"

    @property
    def err(self) -> Path:
        return self.study.folder / f"{self.name}.err"

    def said(self, text: str) -> bool:
        return text in self.err.read_text()

    def ended(self) -> bool:
        """Whether its process has ended; what it used is added up then."""
        if self.process is None:
            return True
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.process = None
        self.seconds += used.ru_utime + used.ru_stime
        self.largest = max(self.largest, used.ru_maxrss * 1024)
        return True

    def kill(self) -> None:
        if self.process is not None:
            # Not by its own method, which would reap it.
            os.kill(self.process.pid, signal.SIGKILL)
            while not self.ended():
                time.sleep(LOOK)


@dataclass(frozen=True)
class Contributed:
    """``truth``: how many honest ones are in each bin, (d,); ``milliseconds`` of processor and ``bytes`` of each of them.

    ``one_share``: files in which only one member's share is wrong, of nobody's pay: they count where that member's list does not.
    """

    truth: NDArray[np.float64] = field(repr=False)
    honest: int
    one_share: int
    milliseconds: float
    bytes: float


@dataclass
class Day:
    """One session of this size in a new ``folder``, contributed to ``within`` so many seconds; ``patience``: of its rounds."""

    size: Size
    folder: Path
    ports: Sequence[int]
    within: float
    patience: float

    @cached_property
    def study(self) -> CommitteeStudy:
        size = self.size
        members = tuple(f"m{number + 1}" for number in range(size.members))
        histogram = {"kind": "histogram", "column": "pay", "bins": size.dimension - OUTSIDE}
        committee = {
            "colluding": size.colluding,
            "gone": size.gone,
            "contribute_by": soon(self.within),
            "grace": 5.0,
            "verified": size.verified,
            "largest_weight": 1.0,
        }
        return CommitteeStudy(
            self.folder,
            {"unit": "record", "epsilon": EPSILON, "statistic": [histogram], "round_timeout": self.patience},
            committee,
            members,
            tuple(f"c{number + 1}" for number in range(size.contributors)),
            {name: f"127.0.0.1:{port}" for name, port in zip(members, self.ports, strict=True)},
        )

    def contribute(self) -> Contributed:
        """Put all files, those of liars too, in a folder; members take them meanwhile."""
        size, study = self.size, self.study
        session = session_of(study.sealed, study.plan)
        counts, spent, bytes_ = np.zeros(size.dimension), 0.0, 0
        bins = size.dimension - OUTSIDE
        # The first is honest: its ciphertexts are copied.
        liars = set(study.contributors[:: size.contributors // size.liars][1:] if size.liars else ())
        ways = itertools.cycle(VERIFIED if size.verified else ALWAYS)
        content, one_share = b"", 0
        # Each reads the sealed study once; this process would do so for each of them.
        with mock.patch.object(by_file, "session_of", return_value=session):
            for name in study.contributors:
                if name in liars:
                    way = next(ways)
                    one_share += way is Liar.one_share_changed
                    self.put(name, way(Liar(session, study.identities[name], content)))
                    continue
                pay = HIGH * float(BitStream(Seed.public(name)).uniform(1)[0]) ** 2
                begun = time.process_time()
                content = self.made(name, pay)
                spent += time.process_time() - begun
                self.put(name, content)
                counts[1 + int(pay * bins / HIGH)] += 1
                bytes_ += len(content)
        honest = size.contributors - len(liars)
        return Contributed(counts, honest, one_share, 1000 * spent / honest, bytes_ / honest)

    def made(self, name: str, pay: float) -> bytes:
        """By the code of ``quietmean send``: keys, register and the file that is kept are durable."""
        study = self.study
        register = Register(self.folder / "register")
        contributor = CommitteeContributor(study.sealed, study.plan, study.identities[name], study.keys[name], register)
        encoded = study.sealed.study.workload.encode(np.array([[pay]]), step=study.plan.value_step)
        return contributor.contribute(encoded).to_file()

    def put(self, name: str, content: bytes) -> None:
        """Whole at once, as copied there."""
        new = self.folder / "box" / f".{name}"
        new.write_bytes(content)
        new.rename(new.with_name(f"{name}.contribution"))

    def run(self) -> dict[str, Any]:
        """What was measured. Raises :class:`SystemExit` where the result is not what it has to be."""
        deadline = time.time() + self.within
        sealed = time.monotonic()
        members = [Member(self.study, name, self.folder / "box") for name in self.study.members]
        sealing = time.monotonic() - sealed
        (self.folder / "box").mkdir()
        try:
            for member in members:
                member.start()
            contributed = self.contribute()
            spare = deadline - time.time()
            require(spare > 0, f"contributions took {-spare:.0f} s longer than there was: say more with --within")
            self.kill_some(members)
            while self.running(members):
                require(time.time() < deadline + MOST, "the session did not end")
                time.sleep(LOOK)
            took = time.time() - deadline
        finally:
            for member in members:
                member.kill()
        return {**self.checked(members, contributed), "sealing_seconds": sealing, "spare": spare, "session_seconds": took}

    def kill_some(self, members: list[Member]) -> None:
        """The last ones for good at instants of the session that chance decides, and the one before them to start it again."""
        rng = np.random.default_rng(self.size.contributors)
        victims = members[-self.size.gone - 1 :]
        for number, member in enumerate(victims):
            while not member.said(PHASE) and not member.ended():
                time.sleep(LOOK)
            time.sleep(float(rng.exponential(1.0)))
            member.kill()
            if not number:
                member.start()

    @staticmethod
    def running(members: list[Member]) -> int:
        return sum([not member.ended() for member in members])

    def checked(self, members: list[Member], contributed: Contributed) -> dict[str, Any]:
        stayed = members[: self.size.members - self.size.gone]
        results = [json.loads(member.out.read_text() or "{}") for member in stayed]
        for member, document in zip(stayed, results, strict=True):
            require("statistics" in document, f"{member.name} has no result: {member.err.read_text()[-2000:]}")
        first, size = results[0], self.size
        require(all(document["statistics"] == first["statistics"] for document in results), "members differ")
        counted = first["contributions"]["counted"]
        possible = (contributed.honest, contributed.honest + contributed.one_share)
        require(counted in possible, f"{counted} counted, and not {' or '.join(map(str, possible))}")
        (answer,) = first["statistics"]
        estimate, errors = (np.array(list(answer[what].values())) for what in ("estimate", "standard_error"))
        away = (estimate - contributed.truth) / errors
        return {
            **vars(size),
            "counted": counted,
            "left_out": len(first["contributions"]["left_out"]),
            "deviations": float(np.sqrt(np.mean(away**2))),
            "contributor_milliseconds": contributed.milliseconds,
            "contribution_bytes": contributed.bytes,
            "member_milliseconds": 1000 * max(member.seconds for member in members) / size.contributors,
            "member_megabytes": max(member.largest for member in members) / 1e6,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("contributors", "dimension", "members", "colluding", "gone"):
        parser.add_argument(name, type=int)
    parser.add_argument("--verified", action="store_true")
    parser.add_argument("--liars", type=int, default=0)
    parser.add_argument("--within", type=float, default=120.0, help="seconds for contributing")
    parser.add_argument("--patience", type=float, default=10.0, help="round_timeout of the study, in seconds")
    parser.add_argument("--folder", type=Path, help="a new folder here, which is removed at the end")
    asked = vars(parser.parse_args())
    within, folder, patience = asked.pop("within"), asked.pop("folder"), asked.pop("patience")
    size = Size(**asked)
    with tempfile.TemporaryDirectory(dir=folder) as new, reserved(size.members) as ports:
        print(json.dumps(Day(size, Path(new), ports, within, patience).run()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
