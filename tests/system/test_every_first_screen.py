"""The first screen of every command, for a plain study: at most 12 lines of 80 columns, at a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import COMMANDS, main
from quietmean.node import Identity
from quietmean.node.monitor import status_path, write_status
from quietmean.studies.party import PartyContext
from support.hostile_numbers import nothing_begins
from support.mistaken import Desk
from support.ports import reserved
from support.screens import Screen, screen_of, screen_of_process
from support.site_files import SEALED, Site
from support.smallest_study import of_ages
from system.test_printed_facts import keys

# A line a command, in a folder with all that it needs; {new}: a name that is not there yet.
TYPED = {
    "demo": "demo --out {new}",
    "run": 'run ages.csv "mean(age in 0..100)" --parties 3 --epsilon 4 --protocol packed-sharing --out {new}',
    "plan": "plan --parties 20 --epsilon 1 --delta 1e-6",
    "result": "result other.receipt.json",
    "simulate": "simulate other.plan --runs 20",
    "study new": 'study new "mean(age in 0..100)" --name ages --protocol local-dp --out {new}.toml',
    "study mock": "study mock study.toml --rows 5 --out {new}.csv",
    "study synthesize": "study synthesize synthetic.receipt.json --rows 5 --out {new}.csv",
    "study invite": "study invite by-file.toml --key convener.key --out {new}.invitation",
    "study vouchers": "study vouchers vouched.invitation --key ada.key --out {new}",
    "study seal": "study seal by-file.invitation south.entry west.entry --key convener.key --out {new}.sealed",
    "study form": "study form vouched.sealed https://drop.example.org {new}.html --key convener.key",
    "study start": "study start quorum.toml --roster roster.toml --key ada.key",
    "study combine": f"study combine {SEALED} south.contribution west.contribution --receipt {{new}}.receipt.json",
    "accept": "accept by-file.invitation --key {new}.key --name north --out {new}.entry",
    "check": "check study.toml --roster roster.toml --key ada.key --data ages.csv --policy policy.toml --no-ledger --wait 0",
    "join": "join met.toml --roster met-roster.toml --key {new}.key --data ages.csv --policy policy.toml --yes --no-ledger",
    "send": f"send {SEALED} --key south.key --data ages.csv --policy policy.toml --yes --no-ledger --out {{new}}.contribution",
    "site data": "site data ages.csv study.toml",
    "site contract": "site contract study.toml --roster roster.toml --key ada.key --policy policy.toml",
    "site approve": "site approve study.toml --roster roster.toml --party ada --owner-key owner.key --account ages "
    "--until 2090-01-01 --policy owned.toml --accept {digest} --out {new}.approval",
    "site budget": "site budget --ledger kept/ledger --account ages",
    "site audit": "site audit --log 'kept/audit log'",
    "site status": "site status kept/store",
    "site clean": "site clean kept",
    "site desk": "site desk . --party south --data ages.csv --key south.key --policy policy.toml --owner-key owner.key "
    "--no-browser",
    "serve relay": "serve relay --listen 127.0.0.1:{port}",
    "serve drop": "serve drop --study kept/wages/study.sealed --listen 127.0.0.1:{port} --folder {new} --key kept/wages/m1.key",
    "verify receipt": "verify receipt other.receipt.json",
    "verify attack": "verify attack other.receipt.json --target 0 --corrupt 1 --trials 200",
    "verify words": f"verify words {SEALED} --key south.key",
    "key new": "key new --key {new}.key --name north",
    "key revoke": "key revoke spare.key.revocation",
    "schema": "schema result",
    "completion": "completion bash",
}
# A document or a script for programs is as long as it is.
FOR_PROGRAMS = ("schema", "completion")
# A table of several terms has a row for each, and here the true value beside it.
OF_MANY_TERMS = ("demo",)
# At a yes, what must not be missed stands above the answer, and counts besides: tests of these screens bound it.
AT_A_YES = ("site contract", "site approve", "join")
# What serves until it is stopped, and a word of what it prints.
SERVING = {"serve relay": "127.0.0.1", "serve drop": "signs receipts as", "site desk": "Ctrl-C"}
# The link that lets in is said on standard error, where no file keeps it.
ON_ERROR = ("site desk",)
# A party that is not there makes a check end so.
CODES = {"check": (0, 3), **dict.fromkeys(SERVING, (0, 130))}
WITHOUT_JSON = ("demo", "site desk", "schema", "completion", "serve relay", "serve drop", "join")
BEFORE: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "data" / "json_keys_of_commands.json").read_text())


@pytest.fixture(scope="module")
def desk(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    with nothing_begins():
        made = Desk(site, tmp_path_factory.mktemp("documents"))
    # The node that `study start` speaks to is this process.
    store = PartyContext.load(Path("quorum.toml"), Path("roster.toml"), Path("ada.key"), Identity.load, None).store(None)
    view = json.loads(status_of_a_finished_node())
    write_status(status_path(store), view | {"state": "running"})
    write_status(status_path(Path("kept/store")), view | {"state": "finished"})
    shutil.copy("kept/store", "kept/ages-ada.store")
    write_status(status_path(Path("kept/ages-ada.store")), view | {"state": "finished"})
    # One that nothing else needs is refused.
    main(["key", "new", "--key", "spare.key"])
    return made


def status_of_a_finished_node() -> str:
    """What the status file of a node has that has ended."""
    times = dict.fromkeys(("started", "since", "updated"), "2030-01-02T12:00:00.000+00:00")
    counts = dict.fromkeys(("messages_sent", "messages_received", "bytes_sent", "bytes_received"), 8)
    lists = {"waiting_for": [], "seconds": [0.02], "late": [], "refused": [], "peers": []}
    place = {"study": "ages", "party": "ada", "phase": "closing", "round": 0, "of": 0, "reason": "", "until": ""}
    return json.dumps({**times, **counts, **lists, **place, "refusals": 0, "last_event": {"event": "over", "phase": "closing"}})


def written(desk: Desk, command: str, way: str, more: str = "", port: int = 0) -> str:
    return TYPED[command].format(new=f"{way}-{command.replace(' ', '-')}", digest=desk.digest, port=port) + more


def joined(desk: Desk, terminal: bool) -> Screen:
    """The screen of the first of two parties, while the other one takes part as well."""
    way = "terminal" if terminal else "pipe"
    entries, names = [], (f"{way}-join", f"{way}-other")
    with reserved(2) as ports:
        for name, port in zip(names, ports, strict=True):
            identity = Identity.generate()
            identity.save(Path(f"{name}.key"))
            entries.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\nkey = "{identity.public_key}"\n')
        Path("met-roster.toml").write_text("\n".join(entries))
        Path("met.toml").write_text(of_ages(colluding=0, name=f"met {way}"))
        line = written(desk, "join", way)
        other = shlex.split(line.replace(names[0], names[1]))
        with Path("other.txt").open("wb") as said:
            peer = subprocess.Popen([sys.executable, "-m", "quietmean.cli.main", *other], stdout=said, stderr=said)
        try:
            return screen_of_process(line, terminal)
        finally:
            peer.wait(120)


def shown(desk: Desk, command: str, terminal: bool) -> Screen:
    way = "terminal" if terminal else "pipe"
    if command == "join":
        return joined(desk, terminal)
    if command in SERVING:
        with reserved(1) as ports:
            return screen_of_process(
                written(desk, command, way, port=ports[0]), terminal, until=SERVING[command], on_error=command in ON_ERROR
            )
    return screen_of(written(desk, command, way), terminal)


# What a person puts in the place of words that stand for it, in the order in which they are tried.
PUT = {
    "NAME.entry ...": "north.entry east.entry", "OTHER.contribution ...": "west.contribution",
    "study invite": "study invite --key convener.key",
    "INVITATION": "vouched.invitation", "REGISTRAR.key": "ada.key --out {new}",
    "NAME.key --name NAME": "{name}.key --name {name}", "NAME.key": "ada.key", "FILE": "ages.csv", "FOLDER": ".",
    "--roster ROSTER": "--roster roster.toml", "NAME": "ages", "RECEIPT": "other.receipt.json",
    "EPSILON DELTA": "4 1e-6", "HOST:PORT": "127.0.0.1:{port}",
}  # fmt: skip
_TYPED_NEXT = re.compile(r"^(?:[A-Z][\w ]{9}|[\w ]+: )quietmean (.*?)(?: {2,}.*)?$")
# What others give first, the key of another party, a site's own rules, or its yes.
_NOT_YET = re.compile(
    "is not in the sealed study|is the key of nobody in|says nothing of an audit log|breaks rules of the limits|"
    "then give --accept DIGEST|are not a certificate and its key"
)


def next_lines(screen: Screen) -> Iterator[str]:
    """The commands that a screen leads to, as one person types them, or two where each is to give an own name."""
    for line in screen.lines:
        if (found := _TYPED_NEXT.match(line)) is not None:
            typed = found[1]
            for word, place in PUT.items():
                typed = typed.replace(word, place)
            yield from dict.fromkeys(
                typed.format(name=name, port=port, new=f"next-{name}") for port, name in enumerate(("north", "east"), 7652)
            )


def wrong_steps(screen: Screen) -> list[str]:
    """The next commands that cannot be typed as they are printed, and what they say."""
    ends = [(typed, screen_of(typed, terminal=False)) for typed in next_lines(screen)]
    return [f"{typed}: {end.err}" for typed, end in ends if end.code not in (0, 3) and not _NOT_YET.search(end.err)]


def test_every_command_is_here() -> None:
    assert set(TYPED) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("command", sorted(TYPED))
def test_a_first_screen_is_short(command: str, terminal: bool, desk: Desk) -> None:
    screen = shown(desk, command, terminal)
    uncounted = ("! ", " " * 14) if command in AT_A_YES else ("  ",) if command in OF_MANY_TERMS else ()
    faults = screen.faults(uncounted, CODES.get(command, (0,)))
    if command in FOR_PROGRAMS:
        faults = [fault for fault in faults if not fault.endswith("lines") and "columns:" not in fault]
    assert faults == [], screen.out
    if not terminal and command not in SERVING:
        assert wrong_steps(screen) == [], screen.out


# Commands with more to show. What they print besides the first screen is of any length, and of the same width.
DETAILED = (
    *("plan", "result", "run", "check", "site budget", "site contract", "site status", "site audit", "site data"),
    *("verify receipt", "verify attack", "simulate", "study combine"),
)


@pytest.mark.slow
@pytest.mark.parametrize("command", DETAILED)
def test_no_line_of_details_is_wider_than_the_screen(command: str, desk: Desk) -> None:
    """But paths, digests and commands to paste."""
    screen = screen_of(written(desk, command, "details", " --details"), terminal=False)
    faults = [fault for fault in screen.faults((), CODES.get(command, (0,))) if not fault.endswith(" lines")]
    assert faults == [], screen.out


def json_of(desk: Desk, command: str) -> set[str]:
    return set(keys(document_of(desk, command, "json")))


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(TYPED) - set(WITHOUT_JSON)))
def test_documents_have_every_key_that_they_had(command: str, desk: Desk) -> None:
    assert BEFORE[command]
    assert set(BEFORE[command]) - json_of(desk, command) == set()


_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def values(document: Any) -> Iterator[str | float]:
    """All texts and numbers of a document; a moment as screens have it, without seconds."""
    if isinstance(document, dict | list):
        for inner in document.values() if isinstance(document, dict) else document:
            yield from values(inner)
    elif isinstance(document, str):
        yield re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*$", r"\1 \2", document)
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield document


def lost(document: Any, said: str) -> list[str | float]:
    """The values of a document that a screen does not say. A number may be rounded, or in kB; a file may be one of a folder."""
    text = " ".join(said.split())
    numbers = [float(number.replace(",", "")) for number in _NUMBER.findall(text)]

    def stands(value: str | float) -> bool:
        if isinstance(value, str):
            return " ".join(value.split()) in text or (len(parent := str(Path(value).parent)) > 1 and f"{parent}." in text)
        return any(math.isclose(value, number * factor, rel_tol=0.01, abs_tol=1e-9) for number in numbers for factor in (1, 1e3))

    return [value for value in values(document) if not stands(value)]


def document_of(desk: Desk, command: str, way: str) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main(shlex.split(written(desk, command, way, " --json")))
    return json.loads(printed.getvalue().replace(f"{way}-", "all-"))


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(TYPED) - set(WITHOUT_JSON)))
def test_a_screen_says_every_value_of_its_document_or_leads_to_details(command: str, desk: Desk) -> None:
    """But those that are made anew each time, such as keys."""
    said = screen_of(written(desk, command, "all"), terminal=False).out
    if "--details" in said:
        return
    one, other = (list(values(document_of(desk, command, way))) for way in ("own", "new"))
    assert len(one) == len(other)
    assert lost([value for value, again in zip(one, other, strict=True) if value == again], said) == [], said


def test_a_value_that_no_screen_says_is_found() -> None:
    assert lost({"a": ["b.key", 0.12345], "c": True, "d": None}, "written to\nb.key, 0.123") == []
    assert lost({"a": ["b.key", 0.12345], "c": 3}, "c.key 0.13") == ["b.key", 0.12345, 3]


def test_a_long_screen_is_found() -> None:
    assert Screen(0, "line\n" * 12).faults() == []
    assert Screen(0, "line\n" * 13).faults() == ["13 lines"]
    assert Screen(0, "w " * 41).faults() == ["81 columns: " + "w " * 40 + "w"]
    assert Screen(0, f"Next      quietmean result {'x' * 80}\nSaved     {'x' * 80}.html").faults() == []
    assert Screen(1, "", "Traceback (most recent call last)").faults()[1:] == ["nothing is printed", "a traceback"]
