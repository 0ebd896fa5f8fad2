"""Studies that ask for what no site should give: none sends a number, opens a connection or writes a contribution.

Each is sealed by its convener or lies in a file beside a roster, and is given to ``join``, ``check``, ``contribute`` and Python
at a site with the policy of a careful hospital, which says yes to all of them. The other parties listen: who dials them is seen.
"""

from __future__ import annotations

import contextlib
import io
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.cli.identity import load_identity
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party.handing_in import contract_by_file
from support.consent import accept as yes_of
from support.meeting import meet
from support.site_policy import toml, write_policy

NAMES = ("north", "south", "east", "west", "inland")
SITE = "south"
CAREFUL: dict[str, Any] = {
    "largest_epsilon": 2.0,
    "largest_delta": 1e-5,
    "least_colluding": 1,
    "smallest_parties": 4,
    "smallest_records": 20,
    "units": ["record"],
    "statistics": ["mean", "proportion"],
    "protocols": ["cordp-dme", "local-dp", "packed-sharing", "gossip", "consensus"],
    "never": ["hiv"],
    "no_privacy": False,
    "ports": [],
    "unattended": True,
}
AGE = {"name": "age", "low": 0.0, "high": 100.0}
HARMLESS = {"name": "ages", "epsilon": 1.0, "delta": 1e-6, "colluding": 1, "dropouts": 0.2, "protocol": "cordp-dme"}


@dataclass(frozen=True)
class Hostile:
    """What differs from a harmless study, and the words by which it is refused: of the rule, or of the field."""

    refused: str
    study: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[Mapping[str, Any], ...] = (AGE,)
    statistics: tuple[Mapping[str, Any], ...] = ()
    parties: int = 5
    records: int = 40
    addresses: Mapping[str, str] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()

    def tables(self) -> dict[str, Any]:
        statistics = {"statistic": [dict(one) for one in self.statistics]} if self.statistics else {}
        return {"study": {**HARMLESS, **self.study}, "column": [dict(one) for one in self.columns], **statistics}


HIV = {"name": "hiv", "boolean": True}
STUDIES = {
    "nothing is protected": Hostile("no_privacy", {"protocol": "gossip", "dropouts": 0.0}, more=("--no-privacy",)),
    "a huge epsilon": Hostile("largest_epsilon", {"epsilon": 25.0}),
    "epsilon just above": Hostile("largest_epsilon", {"epsilon": 2.0001}),
    "infinite epsilon": Hostile("epsilon", {"epsilon": float("inf")}),
    "delta one half": Hostile("largest_delta", {"delta": 0.5}),
    "nobody colludes": Hostile("least_colluding", {"colluding": 0}),
    "a fraction of a party": Hostile("colluding", {"colluding": 0.1}),
    "another unit": Hostile("units", {"unit": "party"}),
    "a bound known only afterwards": Hostile("largest_epsilon", {"protocol": "consensus", "dropouts": 0.0}),
    "another protocol": Hostile("protocols", {"protocol": "gopa", "dropouts": 0.0}),
    "another statistic": Hostile("statistics", statistics=({"kind": "quantiles", "column": "age", "bins": 8},)),
    "a column that nobody may use": Hostile("never", columns=(AGE, HIV)),
    "the same, transformed": Hostile(
        "never", columns=({"name": "hiv", "low": 0.0, "high": 1e3}, {"name": "load", "from": "log(hiv)", "low": 0.0, "high": 7.0})
    ),
    "bounds that isolate a person": Hostile("column", columns=({"name": "age", "low": 97.0, "high": 97.5},)),
    "a level that isolates a group": Hostile("column", columns=({"name": "age", "boolean": True},)),
    "two parties": Hostile("smallest_parties", {"dropouts": 0.4}, parties=3),
    "a site that is a handful": Hostile("smallest_records", records=3),
    "more than is left": Hostile("account", {"epsilon": 2.0}, policy={"budget": {"epsilon": 1.0, "delta": 1e-6}}),
    "the cloud's own address": Hostile("nobody can connect", addresses={"east": "169.254.169.254:80"}),
    "this machine in disguise": Hostile("hosts", addresses={"south": "192.0.2.7:7001", "east": "[::ffff:127.0.0.1]:22"}),
    "this machine in short": Hostile("impossible IPv4", addresses={"south": "192.0.2.7:7001", "east": "127.1:22"}),
    "the inner network": Hostile("hosts", addresses={"east": "10.0.0.7:7001"}, policy={"hosts": ["127.0.0.1", "*.example"]}),
    "another port": Hostile("ports", addresses={"east": "127.0.0.1:22"}),
    "a convener who may be everybody": Hostile("trust_convener", policy={"trust_convener": False}),
    "another seal than was agreed": Hostile("is not the digest", more=("--accept", "0" * 64)),
}
# Contributions by file go nowhere.
ABOUT_DIALLING = ("hosts", "ports")
ABOUT_DATA = ("smallest_records", "account")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return tmp_path


@dataclass(frozen=True)
class Street:
    """Where the parties are. All but the site listen, and who dials them is seen."""

    ports: Mapping[str, int]
    sockets: tuple[socket.socket, ...]

    def callers(self) -> int:
        """How many connections were made."""
        count = 0
        for one in self.sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    one.accept()[0].close()
                    count += 1
        return count


@pytest.fixture
def street(free_ports: Callable[[int], list[int]]) -> Iterator[Street]:
    ports = {SITE: free_ports(1)[0]}
    with contextlib.ExitStack() as stack:
        sockets = tuple(stack.enter_context(socket.create_server(("127.0.0.1", 0))) for name in NAMES if name != SITE)
        for one in sockets:
            one.setblocking(False)
        ports.update(zip((name for name in NAMES if name != SITE), (one.getsockname()[1] for one in sockets), strict=True))
        yield Street(ports, sockets)


def prepare(asked: Hostile, street: Street) -> dict[str, Identity]:
    """The site's policy and data, and the study and its roster in files; the keys of all parties."""
    rules = {**CAREFUL, "ports": list(street.ports.values()), **asked.policy}
    write_policy(budget=rules.pop("budget", None), columns=[AGE], **rules)
    columns = [str(column["name"]) for column in asked.columns if "from" not in column]
    rows = [",".join(str((row + place) % 2) for place in range(len(columns))) for row in range(asked.records)]
    Path("wards.csv").write_text("\n".join([",".join(columns), *rows]) + "\n")
    identities = {name: Identity.generate() for name in NAMES[: asked.parties]}
    identities[SITE].save(Path("south.key"))
    # Of an address that no program of ours would write, too.
    hosts = {name: at.rpartition(":") for name, at in places(asked, street).items()}
    entries = [
        RosterEntry(name, (host.strip("[]"), int(port)), identities[name].public_key) for name, (host, _, port) in hosts.items()
    ]
    Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())
    Path("study.toml").write_text(toml(asked.tables()))
    return identities


def places(asked: Hostile, street: Street) -> dict[str, str]:
    return {name: asked.addresses.get(name, f"127.0.0.1:{street.ports[name]}") for name in NAMES[: asked.parties]}


def seal(asked: Hostile, street: Street, identities: dict[str, Identity]) -> Sealed | str:
    """The sealed study, also in a file; or why nobody's program makes it, so that no site ever has to read it."""
    try:
        sealed = meet(Path(), tuple(identities), asked.tables(), identities, places(asked, street)).seal()
    except InputError as error:
        return str(error)
    Path("sealed.study").write_bytes(sealed.signed.to_file())
    return sealed


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and what was written on standard error."""
    capsys.readouterr()
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().err


def nothing_left(street: Street) -> None:
    assert street.callers() == 0
    assert not list(Path().glob("*.contribution*"))


def yes_to(sealed: Sealed) -> str:
    """What the site says yes with; of a study that nobody can plan, anything."""
    try:
        return yes_of(SITE, sealed)
    except InputError:
        return "0" * 64


def yes_by_file(sealed: Sealed) -> str:
    """What the site says yes with where it hands in a file: other facts stand above that answer."""
    key = Path("south.key")
    return contract_by_file(sealed, load_identity(key), key).accept_digest


def join_from_python(asked: Hostile) -> None:
    with warnings.catch_warnings():
        # That an account is made.
        warnings.simplefilter("ignore")
        qm.join(
            "study.toml",
            "roster.toml",
            "south.key",
            data="wards.csv",
            accept="0" * 64 if "--accept" in asked.more else None,
            yes="--accept" not in asked.more,
            no_privacy="--no-privacy" in asked.more,
        )


OWN = ("--data", "wards.csv", "--key", "south.key")
COMPARED = tuple(part for name in NAMES if name != SITE for part in ("--compared", name))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", STUDIES)
def test_none_sends_a_number(name: str, street: Street, capsys: pytest.CaptureFixture[str]) -> None:
    asked = STUDIES[name]
    identities = prepare(asked, street)
    plain = ["study.toml", "--roster", "roster.toml", *OWN]
    if asked.refused != "trust_convener":
        yes = () if "--accept" in asked.more else ("--yes",)
        code, errors = ended(["join", *plain, *yes, *asked.more], capsys)
        assert (code, asked.refused in errors, "Traceback" in errors) == (2, True, False), errors
        nothing_left(street)
    if asked.refused not in ("is not the digest", "trust_convener"):
        code, errors = ended(["check", *plain, "--wait", "0", *asked.more], capsys)
        assert (code, asked.refused in errors) == (2, True), errors
        # What fails on the site's own data says that it is not ready, to parties whom its policy allows.
        assert street.callers() == 0 or asked.refused in ABOUT_DATA
    if asked.refused != "trust_convener":
        with pytest.raises(InputError) as found:
            join_from_python(asked)
        assert asked.refused in str(found.value)
        nothing_left(street)
    sealed = seal(asked, street, identities)
    if isinstance(sealed, str):
        assert asked.refused in sealed
        return
    compared = () if asked.refused == "trust_convener" else COMPARED[: 2 * (asked.parties - 1)]
    accept = () if "--accept" in asked.more else ("--accept", yes_to(sealed))
    commands = ["join"] if asked.refused in ABOUT_DIALLING else ["send", "join"]
    for command in commands:
        more = [part for part in asked.more if command == "join" or part != "--no-privacy"]
        code, errors = ended([command, "sealed.study", *OWN, *compared, *accept, *more], capsys)
        assert (code, "Traceback" in errors) == (2, False), errors
        assert asked.refused in errors or (command == "send" and "by file" in errors), errors
        nothing_left(street)


def test_a_harmless_study_gets_through(street: Street, capsys: pytest.CaptureFixture[str]) -> None:
    """What would be seen if one of the others were not refused."""
    identities = prepare(Hostile(""), street)
    code, errors = ended(["check", "study.toml", "--roster", "roster.toml", *OWN, "--wait", "1"], capsys)
    assert code == 3, errors
    assert street.callers() > 0
    sealed = seal(Hostile(""), street, identities)
    assert isinstance(sealed, Sealed)
    code, errors = ended(["send", "sealed.study", *OWN, *COMPARED, "--accept", yes_by_file(sealed)], capsys)
    assert code == 0, errors
    assert Path("south.contribution").exists()
