"""A data manager's day at three hospitals with OMOP databases of their own: from the invitation to the report, as the page says.

Each command is a process, each database one of a real PostgreSQL server. What a hospital calls its tables, columns, codes, query,
database, user, password and patients is in nothing that leaves it, nor in what is kept of the study.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from support.command_lines import ending
from support.consent import accept
from support.omop import PERSONS, TABLES, eunomia, inserts, new_of_the_page, query_of_the_page
from support.pages import commands, words_of
from support.postgresql import by_network, execute, server
from support.recorded_process import recorded_command

SITES = ("north", "south", "east")
# Of a hospital: before each name of its own, and what its patient numbers begin with.
OWN, PATIENTS = "sentinel_", 731_000_000
TOLD = re.compile(rb"sentinel|731000[0-9]{3}|0\.9876543", re.IGNORECASE)
COLUMNS = ("age", "sex", "drug", "started", "bleeding")
SETTINGS = f"""[mapping]
person = "{OWN}person_id"
[codes]
{OWN}concept_ancestor = ["{OWN}ancestor_concept_id", "{OWN}descendant_concept_id"]
[mapping.columns]
drug = "{OWN}drug"
started = "{OWN}started"
bleeding = "{OWN}bleeding"
age = {{ name = "{OWN}age", factor = 0.98765432 }}
sex = {{ name = "{OWN}sex", codes = {{ SentinelW = "f", SentinelM = "m" }} }}
"""
# Three hospitals share a machine here.
PATIENT = {"round_timeout = 10.0": "round_timeout = 120.0", "start_timeout = 60.0": "start_timeout = 300.0"}
# Seconds of a person who reads a page, an address or eight words and types a line.
TYPING = 60


def own_names(statement: str) -> str:
    """With a hospital's names of tables and their columns."""
    columns = {word.split()[0] for listed in TABLES.values() for word in listed.split(", ")}
    return re.sub(rf"\b({'|'.join([*TABLES, *columns])})\b", rf"{OWN}\1", statement)


def own_query(statement: str) -> str:
    """That of the page, as this hospital writes it."""
    statement = own_names(statement.replace("'f'", "'SentinelW'").replace("'m'", "'SentinelM'"))
    head, select, last = statement.rpartition("\nSELECT\n")
    for name in COLUMNS:
        last = re.sub(rf"(?<= AS ){name}\b", f"{OWN}{name}", last)
    return f"{head}{select}{last}"


class Hospital:
    """Its folder, its home and its database, with a user who may only read."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name, self.folder, self.port = name, folder / name, port
        self.folder.mkdir()
        self.home = folder / f"home of {name}"
        self.home.mkdir()
        self.steps: list[tuple[str, float]] = []
        self.cohort = self._fill(SITES.index(name))

    def _fill(self, seed: int) -> list[list[Any]]:
        from adbc_driver_postgresql import dbapi

        base, user, password = f"{OWN}{self.name}", f"{OWN}reader_{self.name}", f"Sentinel-{self.name}"
        execute(f"DROP DATABASE IF EXISTS {base}", f"DROP ROLE IF EXISTS {user}", f"CREATE DATABASE {base}")
        execute(f"CREATE ROLE {user} LOGIN PASSWORD '{password}'")
        rows, cohort = eunomia(seed)
        for table in ("person", "drug_exposure", "condition_occurrence"):
            place = 0 if table == "person" else 1
            rows[table] = [
                tuple(cell + PATIENTS if index == place else cell for index, cell in enumerate(row)) for row in rows[table]
            ]
        with (
            closing(dbapi.connect(server().replace("/postgres?", f"/{base}?"), autocommit=True)) as opened,
            opened.cursor() as cursor,
        ):
            grants = f"GRANT USAGE ON SCHEMA {OWN}cdm TO {user}", f"GRANT SELECT ON ALL TABLES IN SCHEMA {OWN}cdm TO {user}"
            made = (own_names(statement) for statement in inserts(rows, f"{OWN}cdm."))
            for statement in (f"CREATE SCHEMA {OWN}cdm", *made, *grants):
                cursor.execute(statement)
        database = urlsplit(by_network())
        (self.home / ".pgpass").write_text(f"{database.hostname}:{database.port}:*:{user}:{password}\n")
        (self.home / ".pgpass").chmod(0o600)
        (self.folder / "sentinel_cohort.sql").write_text(own_query(query_of_the_page()))
        (self.folder / "sentinel.format.toml").write_text(SETTINGS)
        self.data = (
            f"postgresql://{user}@{database.hostname}:{database.port}/{base}?options=-csearch_path%3D{OWN}cdm"
            "#query=sentinel_cohort.sql,format=sentinel.format.toml"
        )
        return cohort

    def typed(self, line: str, *more: str) -> Any:
        """A process of this line, at this hospital."""
        arguments = [*shlex.split(line), *more]
        frames = self.folder.parent / f"{self.name} {len(self.steps)} {arguments[0]}.frames"
        folders = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CONFIG", "DATA", "CACHE")}
        environment = {"HOME": str(self.home), "PGPASSFILE": str(self.home / ".pgpass"), "TERM": "dumb"} | folders
        self.steps.append((arguments[0], time.monotonic()))
        return recorded_command(self.folder, frames, environment, *arguments)

    def does(self, line: str, *more: str) -> str:
        """What it shows, and that it ends well."""
        process = self.typed(line, *more)
        return self.shown(process)

    def shown(self, process: Any) -> str:
        code, output, errors = ending(process, 600)
        assert code == 0, errors
        name, begun = self.steps[-1]
        self.steps[-1] = (name, time.monotonic() - begun)
        (self.folder / f"{len(self.steps)} {name}.errors").write_text(errors)
        return str(output)


def kept_by(hospital: Hospital) -> Iterator[tuple[str, bytes]]:
    """All files of the hospital but its own settings, query and passwords, and what it was shown."""
    for root in (hospital.folder, hospital.home):
        for path in root.rglob("*"):
            own = {"sentinel_cohort.sql", "sentinel.format.toml", ".pgpass"}
            if path.is_file() and path.name not in own:
                yield path.name, path.read_bytes()


@pytest.mark.slow
def test_a_data_managers_day(tmp_path: Path, free_ports: Callable[[int], list[int]], capsys: pytest.CaptureFixture[str]) -> None:
    server()
    hospitals = [Hospital(name, tmp_path, port) for name, port in zip(SITES, free_ports(3), strict=True)]
    convener = hospitals[0]
    # In the morning north invites, and sends the query along.
    convener.does(new_of_the_page()[len("quietmean ") :], "--protocol", "cordp-dme", "--out", "study.toml")
    study = convener.folder / "study.toml"
    for usual, patient in PATIENT.items():
        assert usual in study.read_text()
        study.write_text(study.read_text().replace(usual, patient))
    convener.does(f"key new --key north.key --name north --address 127.0.0.1:{convener.port}")
    convener.does("study invite study.toml --key north.key --out study.invitation")
    convener.steps.clear()
    invitation = (convener.folder / "study.invitation").read_bytes()
    for one in hospitals:
        (one.folder / "study.invitation").write_bytes(invitation)
        (one.folder / "study.toml").write_bytes((convener.folder / "study.toml").read_bytes())
        key, address = f"--key {one.name}.key --name {one.name}", f"--address 127.0.0.1:{one.port}"
        one.does(f"accept study.invitation {key} {address} --out {one.name}.entry")
        # Each looks at what the study finds in its own database, and nobody else does.
        seen = json.loads(one.does("site", "data", one.data, "study.toml", "--json"))
        assert seen["records"] == len(one.cohort)
        assert (seen["persons"], seen["most_records_of_a_person"]) == (len(one.cohort), 1)
        (convener.folder / f"{one.name}.entry").write_bytes((one.folder / f"{one.name}.entry").read_bytes())
    sealing = convener.typed("study seal study.invitation north.entry south.entry east.entry --key north.key --out study.sealed")
    convener.shown(sealing)
    convener.steps.pop()
    for one in hospitals[1:]:
        (one.folder / "study.sealed").write_bytes((convener.folder / "study.sealed").read_bytes())
    for one in hospitals:
        one.does(f"verify words study.sealed --key {one.name}.key", "--json")
    common = {one: ["--key", f"{one.name}.key", "--data", one.data, "--new-account", "cohort"] for one in hospitals}
    checks = [(one, one.typed("check study.sealed --wait 300", *common[one])) for one in hospitals]
    for one, process in checks:
        one.shown(process)
    joins = []
    for one in hospitals:
        compared = [name for name in SITES if name != one.name]
        # A person at a terminal reads the terms and types the words there: join asks for both.
        yes = ["--accept", accept(one.name, one.folder / "study.sealed"), "--compared", compared[0], "--compared", compared[1]]
        kept = ["--receipt", f"{one.name}.receipt.json", "--log-file", "join.log", "--events", "events.jsonl", "--json"]
        joins.append((one, one.typed("join study.sealed", *common[one], *yes, *kept)))
    results = [json.loads(one.shown(process)) for one, process in joins]
    for one in hospitals:
        one.does(f"verify receipt {one.name}.receipt.json --report {one.name}.html --table {one.name}.csv")
    right(results, np.array([row for one in hospitals for row in one.cohort], dtype=float))
    nothing_told(hospitals)
    # Steps and minutes of the slowest.
    for one in hospitals:
        own = [line for line in commands("analyse/data.md") if not line.startswith("quietmean study new")]
        assert [name for name, _ in one.steps] == [line.split()[1] for line in own]
    seconds = max(sum(took for _, took in one.steps) for one in hospitals)
    with capsys.disabled():
        each = ", ".join(f"{name} {took:.1f}" for name, took in hospitals[0].steps)
        minutes = (seconds + TYPING * len(convener.steps)) / 60
        print(
            f"\na data manager's day: {len(convener.steps)} lines ({each} s), {seconds:.0f} s of waiting, {minutes:.0f} minutes"
        )


def right(results: list[dict[str, Any]], cohort: np.ndarray[Any, Any]) -> None:
    """The mean age of each drug's persons, within six standard errors, and the same everywhere."""
    assert len({json.dumps(one["statistics"], sort_keys=True) for one in results}) == 1
    (means,) = [one for one in results[0]["statistics"] if one["kind"] == "group-means"]
    assert means["records"] == len(cohort) < len(SITES) * PERSONS
    for place, drug in enumerate(("celecoxib", "diclofenac")):
        ages = np.clip(cohort[cohort[:, 2] == place, 0] * 0.98765432, 18, 100)
        assert abs(means["estimate"][drug] - ages.mean()) < 6 * means["standard_error"][drug]


def nothing_told(hospitals: list[Hospital]) -> None:
    frames = b"".join(path.read_bytes() for path in hospitals[0].folder.parent.glob("*.frames"))
    assert len(frames) > 5_000
    assert not TOLD.search(frames)
    for one in hospitals:
        kept = dict(kept_by(one))
        receipt, log, page = (kept[name] for name in (f"{one.name}.receipt.json", "join.log", f"{one.name}.html"))
        # What is searched is what there is.
        assert all(b"celecoxib" in content for content in (receipt, page))
        assert log
        assert any(name.endswith(".store") for name in kept)
        assert any("ledger" in name for name in kept)
        assert "person" in words_of(page.decode())
        assert [name for name, content in kept.items() if TOLD.search(content)] == []
