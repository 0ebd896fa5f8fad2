"""Whatever kind of file a command reads: one sentence or the answer, never a traceback, and nothing is lost."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest

from quietmean.cli.main import COMMANDS
from support.hostile_numbers import Went, nothing_begins
from support.site_files import CONTRIBUTE, JOIN, KINDS, SEALED, Site, attempt, remove, state, wrong_ending

# One line a command that would work, or comes far; every file in it gives way to each kind of file.
LINES = {
    "run": "run --data ages.csv 'mean(age in 0..100)' --parties 2 --protocol local-dp --out new",
    "plan": "plan --study study.toml --roster roster.toml --records 40",
    "simulate": "simulate other.plan --runs 2",
    "accept": "accept by-file.invitation --key east.key --name east --replaces south.key --out new.entry",
    "site contract": "site contract study.toml --roster roster.toml --key ada.key --policy policy.toml --plan other.plan",
    "check": "check study.toml --roster roster.toml --key ada.key --data ages.csv --policy policy.toml --plan other.plan "
    "--no-ledger",
    "join": f"{JOIN} --no-ledger --plan other.plan --approval page.html",
    "send": f"{CONTRIBUTE} --no-ledger --out new.contribution",
    "verify words": f"verify words {SEALED} --key south.key",
    "study new": "study new 'mean(age in 0..100)' --out new.toml",
    "key new": "key new --key new.key",
    "study mock": "study mock study.toml --rows 5 --out new.csv",
    "study synthesize": "study synthesize synthetic.receipt.json --rows 5 --out new.csv",
    "study invite": "study invite study.toml --key convener.key --out new.invitation",
    "study seal": "study seal by-file.invitation south.entry west.entry --key convener.key --out new.sealed",
    "study form": "study form vouched.sealed https://drop.example.org new.html --key convener.key",
    "study vouchers": "study vouchers vouched.invitation --key ada.key --own-keys keys.txt --out new",
    "study start": "study start study.toml --roster roster.toml --key ada.key",
    "study combine": f"study combine {SEALED} south.contribution --receipt new.json",
    "result": f"result {SEALED} south.contribution --receipt new.json",
    "site data": "site data ages.csv study.toml",
    "site desk": "site desk . --party south --data ages.csv --key south.key --policy policy.toml --owner-key owner.key",
    "site approve": "site approve study.toml --roster roster.toml --party ada --owner-key owner.key --account ages "
    "--until 2090-01-01 --policy owned.toml --accept 00000000000000000000000000000000 --out new.approval",
    "site budget": "site budget --ledger other.receipt.json --policy policy.toml",
    "site audit": "site audit --policy policy.toml",
    "site status": "site status --study study.toml",
    "site clean": "site clean . --remove ages.csv",
    "key revoke": "key revoke south.key.revocation",
    "serve relay": "serve relay --listen 127.0.0.1:7443 --certificate page.html --private-key south.key --admit roster.toml",
    "serve drop": f"serve drop --study {SEALED} --listen 127.0.0.1:9 --folder new --key south.key",
    "verify receipt": "verify receipt other.receipt.json --observed other.plan",
    "verify attack": "verify attack other.receipt.json --target 0 --corrupt 1 --trials 200",
    "schema": "schema result",
    "completion": "completion bash",
    "demo": "demo --out new",
}
SEED = 20261126
# Of two files that are wrong together.
RANDOM = 100


def places(line: str, site: Site) -> list[int]:
    """Which words are files that are there."""
    return [index for index, word in enumerate(shlex.split(line)) if index and (site.folder / word).is_file()]


def fault(site: Site, line: str, kinds: dict[int, str], capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how the command ends where these words of it are files of other kinds; empty for nothing."""
    words = shlex.split(line)
    before = state(site.folder)
    put = []
    for index, kind in kinds.items():
        place = site.folder / f"place{index}{Path(words[index]).suffix}"
        site.put(kind, place)
        words[index] = place.name
        put.append(place)
    with_them = state(site.folder)
    try:
        try:
            code, errors = attempt(shlex.join(words), capsys)
        except Went:
            return ""
        after = state(site.folder)
        lost = [name for name, one in with_them.items() if after.get(name) != one and not name.startswith(("share", "config"))]
        if lost:
            return f"{lost} changed"
        return wrong_ending(site, code, errors)
    finally:
        for place in put:
            remove(site, before, place)


def test_every_command_is_here() -> None:
    assert set(LINES) == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_any_kind_of_file(command: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    line = LINES[command]
    with nothing_begins():
        faults = {
            f"{shlex.split(line)[index]} is a {kind}": fault(site, line, {index: kind}, capsys)
            for index in places(line, site)
            for kind in KINDS
        }
    assert {what: wrong for what, wrong in faults.items() if wrong} == {}


def test_a_hundred_random_pairs_of_files(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    chance, faults = random.Random(SEED), []
    several = [line for line in LINES.values() if len(places(line, site)) >= 2]
    with nothing_begins():
        for _ in range(RANDOM):
            line = chance.choice(several)
            kinds = {index: chance.choice(KINDS) for index in chance.sample(places(line, site), 2)}
            if wrong := fault(site, line, kinds, capsys):
                faults.append(f"{line} with {kinds}: {wrong}")
    print(f"seed {SEED}")
    assert faults == []
