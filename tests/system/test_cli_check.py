"""Real processes, before and while they run: ``check``, ``status``, and the events and the receipt of ``join``."""

from __future__ import annotations

import io
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from quietmean.cli import check
from quietmean.cli.check_committee import CommitteePlaces
from quietmean.cli.main import main, make_app
from quietmean.cli.options import AgreementOptions
from quietmean.core.site_options import NodeOptions
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import wire
from support.site_policy import BETWEEN_TWO, write_policy
from support.smallest_study import of_ages

STUDY = of_ages(delta=None, colluding=0)
NAMES = ("ada", "bob", "eve")
VALUE = "73.25"
NUMBER = r"(?<![\w.])\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\w)"  # no digits of a digest or of a version


@dataclass
class Consortium:
    """Folder with keys, data, study and roster of some parties, and the processes that a test has started."""

    folder: Path
    names: tuple[str, ...]
    free_ports: Callable[[int], list[int]]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ports = dict(zip(self.names, self.free_ports(len(self.names)), strict=True))
        self.entries = {name: self.entry(name) for name in self.names}
        write_policy(**BETWEEN_TWO)
        self.write("study.toml", STUDY)
        self.write_roster("roster.toml", *self.names)
        for number, name in enumerate(self.names):
            self.write(f"{name}.csv", "age\n" + "\n".join(f"{20 + number + row}" for row in range(40)) + f"\n{VALUE}\n")

    def entry(self, name: str) -> RosterEntry:
        identity = Identity.generate()
        identity.save(self.folder / f"{name}.key")
        return RosterEntry(name, ("127.0.0.1", self.ports[name]), identity.public_key)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def write_roster(self, file: str, *names: str) -> None:
        self.write(file, Roster(tuple(self.entries[name] for name in names)).to_toml())

    def start(self, command: str, name: str, *more: str, study: str = "study.toml", roster: str = "roster.toml") -> Any:
        more = (*more, "--yes") if command == "join" else more
        arguments = [command, study, "--roster", roster, "--data", f"{name}.csv", "--key", f"{name}.key", *more, "--json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "quietmean.cli.main", *arguments],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def check(self, name: str, wait: float = 60.0, **files: str) -> Any:
        return self.start("check", name, "--wait", str(wait), **files)

    def wait_until_listening(self, name: str) -> None:
        for _ in range(1200):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self.ports[name])) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError(f"{name} does not listen")

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


Make = Callable[..., Consortium]


@pytest.fixture
def make(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Make]:
    made: list[Consortium] = []

    def consortium(*names: str) -> Consortium:
        made.append(Consortium(tmp_path, names or NAMES, free_ports))
        return made[-1]

    yield consortium
    for each in made:
        each.stop()


def end(process: subprocess.Popen[str], code: int) -> tuple[dict[str, Any], str]:
    """The document and what was said."""
    output, errors = process.communicate(timeout=180)
    assert process.returncode == code, (output, errors)
    assert "Traceback" not in errors, errors
    document: dict[str, Any] = json.loads(output) if output else {}
    return document, errors


def about(document: dict[str, Any], name: str) -> dict[str, Any]:
    (party,) = (party for party in document["parties"] if party["name"] == name)
    return dict(party)


def has(party: dict[str, Any], expected: dict[str, Any]) -> None:
    assert {name: party[name] for name in expected} == expected


def here(document: dict[str, Any], name: str) -> dict[str, Any]:
    (finding,) = (finding for finding in document["here"] if finding["name"] == name)
    return dict(finding)


def test_all_are_ready(make: Make) -> None:
    consortium = make()
    results = [end(process, 0) for process in [consortium.check(name) for name in NAMES]]
    for document, errors in results:
        assert document["ready"], errors
        assert all(finding["passed"] for finding in document["here"])
        assert document["warnings"] == document["refusals"] == []
        for party in document["parties"]:
            expected = {"key": "proved", "state": "checking", "ready": True, "reachable": True, "reaches_us": True, "trouble": []}
            has(party, expected)
            assert all(party[f"same_{what}"] for what in ("version", "roster", "study", "plan"))
            # All clocks are one.
            assert abs(party["clock_offset_seconds"]) <= party["clock_uncertainty_seconds"] + 0.001
            assert 0 < party["round_trip_seconds"] < 5
    assert len({document["plan"] for document, _ in results}) == 1
    # Nothing was begun.
    assert not list(consortium.folder.glob("*.store*"))


@pytest.mark.slow
def test_another_study_another_roster_and_one_who_is_absent(make: Make) -> None:
    consortium = make("ada", "bob", "eve", "joe")
    consortium.write("edited.toml", STUDY.replace("high = 100", "high = 120"))
    consortium.write_roster("swapped.toml", "ada", "eve", "bob", "joe")
    bob = consortium.check("bob", wait=20, study="edited.toml")
    eve = consortium.check("eve", wait=20, roster="swapped.toml")
    for name in ("bob", "eve"):
        consortium.wait_until_listening(name)
    ada = consortium.check("ada", wait=5)
    seen, errors = end(ada, 3)
    assert not seen["ready"]
    other_study, other_roster, absent = (about(seen, name) for name in ("bob", "eve", "joe"))
    has(other_study, {"same_study": False, "same_plan": False, "same_roster": True, "reachable": True})
    assert other_study["trouble"][0] == "other study: columns.age.high"
    has(other_roster, {"same_roster": False, "same_study": True, "same_plan": True, "key": "proved"})
    assert other_roster["trouble"][0] == "other roster: roster.bob.place, roster.eve.place"
    has(absent, {"reachable": False, "ready": False, "same_plan": None, "key": "unknown"})
    assert "nobody listens" in absent["trouble"][0]
    for word in ("bob: other study", "eve: other roster", "joe: nobody listens"):
        assert word in errors, errors
    assert "other study: columns.age.high" in about(end(bob, 3)[0], "ada")["trouble"][0]
    assert "other roster" in about(end(eve, 3)[0], "bob")["trouble"][0]


@pytest.mark.slow
def test_no_data_keep_a_study_from_going_on_and_the_others_learn_nothing_of_them(make: Make) -> None:
    consortium = make("ada", "bob")
    consortium.write("bob.csv", f"age\n20\nNA\n{VALUE}\n200\n312.75\n")
    bob = consortium.check("bob")
    consortium.wait_until_listening("bob")
    seen, seen_errors = end(consortium.check("ada"), 0)
    own, own_errors = end(bob, 0)
    assert here(own, "data") == {"name": "data", "passed": True, "text": "bob.csv is a table with age"}
    assert "2 values lie outside their bounds and count as the nearest bound and 1 cell counts as missing" in own_errors
    for secret in (VALUE, "200", "312.75"):
        for document in (seen, seen_errors, own, own_errors):
            assert not gossips(document, secret)
    assert "data" not in " ".join(about(seen, "bob"))


def terminal(monkeypatch: pytest.MonkeyPatch, screen: bool) -> io.StringIO:
    """Both streams of the commands, as a ``screen`` before which a person sits, or as files."""
    shown = io.StringIO()
    for name in ("out", "err"):
        console = Console(file=shown, force_terminal=screen, soft_wrap=True, highlight=False, markup=False, width=200)
        for module in ("console", "check", "check_view"):
            if hasattr(import_module(f"quietmean.cli.{module}"), name):
                monkeypatch.setattr(f"quietmean.cli.{module}.{name}", console)
    return shown


@pytest.mark.sampled(1)
@pytest.mark.parametrize("screen", [True, False])
def test_a_look_at_the_data_is_on_their_owners_screen_alone(
    screen: bool,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No frame, log or file has anything of it."""
    consortium = make("ada", "bob")
    cells = [VALUE, "312.75", "Sentinel [red]x[/red]\x1b[31m", "61,5", "61,5", "NA"]
    consortium.write("bob.csv", "age,note\n" + "".join(f'"{cell}",a\n' for cell in cells))
    ada = consortium.check("ada")
    sent: list[bytes] = []
    encode = wire.encode_frame

    def recorded(frame: Any, *more: Any) -> bytes:
        sent.append(encode(frame, *more))
        return sent[-1]

    # Not by getattr: modules of others warn of what they do not have.
    for module in [module for module in sys.modules.values() if getattr(module, "__dict__", {}).get("encode_frame") is encode]:
        monkeypatch.setattr(module, "encode_frame", recorded)
    monkeypatch.chdir(consortium.folder)
    before = {path.name: path.read_bytes() for path in consortium.folder.iterdir()}
    shown = terminal(monkeypatch, screen)
    with caplog.at_level(0):
        main(
            [
                "check",
                "study.toml",
                "--roster",
                "roster.toml",
                "--data",
                "bob.csv",
                "--key",
                "bob.key",
                "--wait",
                "60",
                "--details",
            ]
        )
    end(ada, 0)
    text = shown.getvalue()
    assert ("Sentinel [red]x[/red]?[31m" in text) is screen
    assert ("312.75" in text) is screen
    assert "Sentinel [red]x[/red]\x1b" not in text
    assert sent
    written = {path.name: path.read_bytes() for path in consortium.folder.iterdir()}
    elsewhere = [*sent, *(content for name, content in written.items() if before.get(name) != content)]
    told = b"".join(elsewhere) + "".join([*capsys.readouterr(), caplog.text]).encode()
    for secret in (b"Sentinel", b"312.75", VALUE.encode(), b"61,5"):
        assert secret not in told


RULES = (('missing = "centre"\n', True), ('missing = "indicator"\n', False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "fills"),
    [("", True), *(pytest.param(*case, marks=pytest.mark.slow) for case in RULES)],
)
def test_check_says_where_missing_cells_count_as_the_middle(rule: str, fills: bool, make: Make) -> None:
    """As documents mean it that say nothing of them, and nowhere else."""
    consortium = make("ada", "bob")
    weight = '[[column]]\nname = "weight"\nlow = 40\nhigh = 140\nmissing = "indicator"\n'
    consortium.write("study.toml", f"{STUDY}{rule}{weight}")
    for name in ("ada", "bob"):
        consortium.write(f"{name}.csv", "age,weight\n" + "".join(f"{20 + row},{60 + row}\n" for row in range(40)))
    document, _ = end(consortium.check("ada", wait=0), 3)
    found = [finding for finding in document["here"] if finding["name"] == "missing"]
    told = {"name": "missing", "passed": True, "text": "a missing cell counts as the middle of the bounds: age"}
    assert found == ([told] if fills else [])


@pytest.mark.slow
def test_whether_a_table_can_be_read_is_told_here_only(make: Make) -> None:
    consortium = make("ada", "bob")
    consortium.write("bob.csv", f"years\n20\n{VALUE}\n")
    bob = consortium.check("bob")
    consortium.wait_until_listening("bob")
    seen, _ = end(consortium.check("ada"), 0)
    own, own_errors = end(bob, 2)
    assert about(seen, "bob")["ready"]
    assert not here(own, "data")["passed"]
    assert "data: column 'age' is not one of the 1 column of bob.csv" in own_errors


def gossips(document: object, secret: str) -> bool:
    """Whether a text or a number somewhere in ``document`` is the value, also rounded to a whole number.

    Compared number by number: as substrings, "312" is in the digits of one measured time in a hundred.
    """
    if isinstance(document, dict):
        return any(gossips(part, secret) for item in document.items() for part in item)
    if isinstance(document, list):
        return any(gossips(part, secret) for part in document)
    value = float(secret)
    return any(float(number) in (value, float(int(value)), float(round(value))) for number in re.findall(NUMBER, str(document)))


def test_what_tells_a_value() -> None:
    assert gossips({"a": [{"b": "row 3 is 312.75"}]}, "312.75")
    assert gossips([1, 312.75], "312.75")
    assert gossips("about 313", "312.75")
    assert not gossips({"digest": "ab312-312c", "313.4.1": 1}, "312.75")
    assert not gossips({"clock": 2.3809814453125e-05, "passed": True}, "312.75")


@pytest.mark.slow
def test_strangers(make: Make) -> None:
    """Mallory has a key of his own: his roster calls it bob's, and he listens at bob's address."""
    consortium = make("ada", "bob")
    consortium.ports["mallory"] = consortium.ports["bob"]
    forged = consortium.entry("mallory")
    consortium.entries["mallory"] = RosterEntry("bob", forged.address, forged.public_key)
    consortium.write_roster("forged.toml", "ada", "mallory")
    consortium.write("mallory.csv", "age\n1\n2\n")
    honest = consortium.check("mallory")
    mallory = consortium.check("mallory", wait=20, roster="forged.toml")
    consortium.wait_until_listening("bob")
    ada = consortium.check("ada", wait=6)
    assert "your key is not in the roster" in end(honest, 2)[1]
    seen, _ = end(ada, 3)
    has(about(seen, "bob"), {"key": "other", "ready": False, "reaches_us": False, "same_study": None})
    assert "another key" in about(seen, "bob")["trouble"][0]
    assert any("TLS handshake failed" in line for line in seen["refusals"])
    told, _ = end(mallory, 3)
    has(about(told, "ada"), {"key": "refused", "reachable": False})


@pytest.mark.slow
def test_own_mistakes(make: Make) -> None:
    consortium = make("ada", "bob")
    with socket.create_server(("127.0.0.1", consortium.ports["ada"])):
        (consortium.folder / "other.store").write_bytes(b"no store, but long enough to look like a file of some kind " * 20)
        taken = consortium.start("check", "ada", "--wait", "0", "--store", "other.store", "--ledger", "none.ledger")
        document, errors = end(taken, 2)
    assert not here(document, "address")["passed"]
    assert not here(document, "store")["passed"]
    assert "cannot listen" in errors
    assert "exists already and is not a store" in errors
    silence_timeout = consortium.start("check", "ada", "--wait", "-1")
    assert "wait is -1" in end(silence_timeout, 2)[1]


@pytest.mark.slow
def test_the_budget_is_checked_and_nothing_is_charged(make: Make) -> None:
    consortium = make("ada", "bob")
    budget = ["--account", "ages", "--ledger", "book"]
    for epsilon, fits in (("1.5", False), ("4", True)):
        arguments = ["site", "budget", *budget, "--budget", epsilon, "1e-6", "--json"]
        command = [sys.executable, "-m", "quietmean.cli.main", *arguments]
        made = subprocess.run(command, cwd=consortium.folder, capture_output=True, text=True, check=True)
        assert json.loads(made.stdout)["accounts"][0]["entries"] == []
        document, _ = end(consortium.start("check", "ada", "--wait", "0", *budget), 3 if fits else 2)
        assert here(document, "ledger")["passed"] is fits
    assert "epsilon 0.0000 of 4" in here(document, "ledger")["text"]


@pytest.mark.slow
def test_a_party_that_has_joined_answers_and_goes_on(make: Make) -> None:
    consortium = make("ada", "bob")
    ada = consortium.start("join", "ada")
    consortium.wait_until_listening("ada")
    for _ in range(2):
        seen, _ = end(consortium.check("bob"), 0)
        has(about(seen, "ada"), {"ready": True, "state": "joined: agreement"})
    # Its own check says that it runs already, and of bob that he is not there.
    own, errors = end(consortium.check("ada", wait=0), 2)
    assert "this party runs already" in errors
    assert not about(own, "bob")["ready"]
    bob = consortium.start("join", "bob")
    first, second = end(ada, 0)[0], end(bob, 0)[0]
    assert first["estimate"] == second["estimate"]
    assert first["parties_counted"] == 2


def status(consortium: Consortium, *arguments: str) -> tuple[list[dict[str, Any]], int]:
    command = [sys.executable, "-m", "quietmean.cli.main", "site", "status", *arguments, "--json"]
    done = subprocess.run(command, cwd=consortium.folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["nodes"], done.returncode


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_status_of_a_running_a_killed_and_a_finished_node(make: Make) -> None:
    consortium = make("ada", "bob")
    # Nobody refuses a message there, as parties of packed secret sharing do that have the result.
    consortium.write("study.toml", STUDY.replace("[study]", '[study]\nprotocol = "inca"'))
    ada = consortium.start("join", "ada")
    consortium.wait_until_listening("ada")
    # The file is written a few times a second.
    until(lambda: status(consortium, "study-ada.store")[0][0].get("waiting_for") == ["bob"])
    (node,), code = status(consortium, "study-ada.store")
    assert code == 0
    has(node, {"state": "running", "alive": True, "pid": ada.pid, "phase": "agreement", "waiting_for": ["bob"], "study": "ages"})
    assert node["bytes_sent"] == node["messages_sent"] == 0
    file = consortium.folder / "study-ada.store.status.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert VALUE not in re.findall(r"\d+\.\d+", file.read_text())
    # Another process for the same party is refused, and leaves the status of the first alone.
    end(consortium.start("join", "ada"), 2)
    assert status(consortium, "study-ada.store")[0][0]["pid"] == ada.pid
    ada.kill()
    ada.wait()
    (node,), code = status(consortium, "--study", "study.toml")
    assert code == 3
    has(node, {"state": "gone", "alive": False, "store": "study-ada.store"})
    parties = [consortium.start("join", name) for name in ("ada", "bob")]
    for process in parties:
        end(process, 0)
    nodes, code = status(consortium, "--study", "study.toml")
    assert code == 0
    for node in nodes:
        has(node, {"state": "finished", "phase": "closing", "waiting_for": [], "refusals": 0})
        assert node["messages_sent"] == node["messages_received"] > 0
        assert node["bytes_sent"] > 1000


@pytest.mark.slow
def test_events_and_receipt(make: Make) -> None:
    consortium = make("ada", "bob")
    ada = consortium.start("join", "ada", "--events")
    bob = consortium.start("join", "bob", "--events", "bob.events")
    document, errors = end(ada, 0)
    end(bob, 0)
    for lines in (errors, (consortium.folder / "bob.events").read_text()):
        events = [json.loads(line) for line in lines.splitlines()]
        kinds = [event["event"] for event in events]
        assert kinds[-2:] == ["closing", "result"]
        assert {"round"} <= set(kinds) <= {"agreement", "round", "waiting", "closing", "result"}
        rounds = [event for event in events if event["event"] == "round"]
        assert [event["round"] for event in rounds if event["phase"] == "mixing"] == list(range(1, rounds[0]["of"] + 1))
        assert events[-1]["estimate"] == document["estimate"]
        times = [event["time"] for event in events]
        assert times == sorted(times)
    receipt = json.loads((consortium.folder / "study-ada.receipt.json").read_text())
    origin = receipt["origin"]
    assert receipt["sensitivity"] == origin["target"]["sensitivity"] == 1.0
    assert receipt["certify"]["delta"] == document["delta"]
    assert origin["names"] == ["ada", "bob"]
    assert all(len(origin[name]) == 64 for name in ("plan", "roster", "session", "public_seed"))
    for name in ("silent", "unresolved", "counted_twice"):
        assert origin[name] == document[name] == []
    assert document["notes"] == []
    command = [sys.executable, "-m", "quietmean.cli.main", "verify", "receipt", "study-ada.receipt.json", "--json"]
    certified = subprocess.run(command, cwd=consortium.folder, capture_output=True, text=True, check=True)
    assert json.loads(certified.stdout)["max_epsilon"] == pytest.approx(document["epsilon"])


FLAGS = ("no_privacy", "no_ledger", "new_people")


def test_the_command_that_takes_part_has_all_that_the_check_was_given() -> None:
    """Each option that both have, by their fields: without one of them, join would do another thing than was checked."""
    kinds: tuple[Any, ...] = (AgreementOptions, NodeOptions, CommitteePlaces)
    names = [each.name for kind in kinds for each in fields(kind) if each.name != "drop"]
    values: dict[str, Any] = {name: True if name in FLAGS else 2 if name == "group" else Path(f"/its {name}") for name in names}
    agreed, node, places = (
        kind(**{each.name: values[each.name] for each in fields(kind) if each.name in values}) for kind in kinds
    )
    asking = check._Asking(node, check.CheckOptions(folder="share"), False, Path("a study"), agreed, "ada.csv", places)
    words = shlex.split(asking.next_step("join"))
    assert words[:3] == ["quietmean", "join", "a study"]
    options = [f"--{name.replace('_', '-')}" for name in (*values, "data", "folder")]
    assert sorted(word for word in words if word.startswith("--")) == sorted(options)
    for name, value in {**values, "data": "ada.csv", "folder": "share"}.items():
        following = words[words.index(f"--{name.replace('_', '-')}") + 1 :]
        assert value is True or following[0] == str(value), name
    # And join reads it.
    make_app("join").parse_args(words[1:], exit_on_error=False, print_error=False)
