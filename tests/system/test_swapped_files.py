"""A study in progress whose files are of another study, another party or another time, cut, edited or written anew by an editor.

One sentence and nothing lost; and a file that is not what a person meant never passes for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from quietmean.cli.main import main
from support.hostile_numbers import Went, nothing_begins
from support.site_files import Site, attempt, remove, sentences_of, state

SEED = 20261127
COUNT = 100
# Files of a study, by what they are; each line names what it reads in braces, and comes to its end with the right ones.
LINES = (
    "verify words {sealed} --key {key}",
    "site contract {sealed} --key {key} --policy policy.toml",
    "check {sealed} --key {key} --data ages.csv --policy policy.toml --no-ledger",
    "send {sealed} --key {key} --data ages.csv --policy policy.toml --yes --no-ledger --out new.contribution",
    "send {sealed} --key {key} --data ages.csv --policy owned.toml --account ages --approval {approval} --out new.contribution",
    "study combine {sealed} {contribution} {contribution of west} --receipt new.receipt.json",
    "study seal {invitation} {entry} {entry of west} --key {convener's key} --out new.sealed",
    "accept {invitation} --key new.key --name east --out new.entry",
    "site approve {sealed} --party south --owner-key owner.key --account ages --until 2090-01-01 --policy owned.toml "
    "--accept DIGEST --out new.approval",
    "key revoke {revocation}",
    "verify receipt {receipt}",
    "plan --study {sealed}",
)
Change = Callable[[bytes], bytes]
# What an editor, a mail program or a person does to a file, after which it is another.
CHANGES: dict[str, Change] = {
    "cut": lambda content: content[: len(content) // 2],
    "without its end": lambda content: content[:-20],
    "empty": lambda content: b"",
    "one letter changed": lambda content: re.sub(rb"([a-d])(?=[^a-d]*$)", lambda one: bytes([one[1][0] + 1]), content),
    "a digit changed": lambda content: re.sub(rb"[1-8](?=\D*$)", lambda one: bytes([one[0][0] + 1]), content),
    "of a later version": lambda content: re.sub(rb'(quietmean[a-z -]*?)-?\d+"', rb'\1-99"', content),
    "UTF-16": lambda content: content.decode("utf-8", errors="replace").encode("utf-16"),
    "twice": lambda content: content + content,
    "a page of a mail program": lambda content: b"<html><body><pre>" + content + b"</pre></body></html>",
    "zeros": lambda content: bytes(len(content)),
}
# And after which it is the same: other ends of lines, a mark before the first letter, blank lines behind.
HARMLESS: dict[str, Change] = {
    "ends of lines of Windows": lambda content: content.replace(b"\n", b"\r\n"),
    "blank lines": lambda content: content + b"\n\n",
}


def said(line: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(line))
    return shown.getvalue()


def study(name: str, high: int) -> dict[str, str]:
    """All files of a study of two parties by file."""
    said(f"study new --out {name}.toml --name {name} 'mean(age in 0..{high})' --colluding 0 --protocol local-dp")
    said(f"key new --key {name}-convener.key")
    said(f"study invite {name}.toml --key {name}-convener.key --out {name}.invitation")
    for port, party in enumerate(("south", "west"), 7001):
        place = f"--address 127.0.0.1:{port}"
        said(f"accept {name}.invitation --key {name}-{party}.key --name {party} {place} --out {name}-{party}.entry")
    said(f"study seal {name}.invitation {name}-south.entry {name}-west.entry --key {name}-convener.key --out {name}.sealed")
    for party in ("south", "west"):
        said(
            f"send {name}.sealed --key {name}-{party}.key --data ages.csv --policy policy.toml --yes --no-ledger "
            f"--out {name}-{party}.contribution"
        )
    said(f"study combine {name}.sealed {name}-south.contribution {name}-west.contribution --receipt {name}.receipt.json")
    digest = json.loads(said(f"site contract {name}.sealed --key {name}-south.key --policy owned.toml --json"))["accept"]
    said(
        f"site approve {name}.sealed --party south --owner-key owner.key --account ages --until 2090-01-01 --policy owned.toml "
        f"--accept {digest} --out {name}-south.approval"
    )
    return {
        "sealed": f"{name}.sealed", "key": f"{name}-south.key", "approval": f"{name}-south.approval", "DIGEST": digest,
        "contribution": f"{name}-south.contribution", "contribution of west": f"{name}-west.contribution",
        "invitation": f"{name}.invitation", "entry": f"{name}-south.entry", "entry of west": f"{name}-west.entry",
        "convener's key": f"{name}-convener.key", "revocation": f"{name}-south.key.revocation", "receipt": f"{name}.receipt.json",
    }  # fmt: skip


@pytest.fixture(scope="module")
def studies(site: Site) -> tuple[dict[str, str], dict[str, str]]:
    return study("first", 100), study("second", 120)


def filled(line: str, files: dict[str, str]) -> str:
    for what, name in files.items():
        line = line.replace("{" + what + "}", name)
    return line.replace("DIGEST", files["DIGEST"])


def ends(site: Site, line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, sentence, and what is wrong with how it ends besides."""
    before = state(site.folder)
    try:
        with nothing_begins():
            code, errors = attempt(line, capsys)
    except Went:
        code, errors = 0, ""
    except Exception as error:
        return 1, "", f"{type(error).__name__}: {error}"
    finally:
        after = state(site.folder)
        remove(site, before, site.folder / "nothing")
        # Else nothing is done with the party any more.
        (site.folder / "config" / "quietmean" / "distrusted").unlink(missing_ok=True)
    mine = ("share", "config")
    lost = [name for name, one in before.items() if after.get(name) != one and not name.startswith(mine)]
    sentences = sentences_of(errors)
    wrong = ""
    if lost:
        wrong = f"{lost} changed"
    elif code not in (0, 2, 3):
        wrong = f"exit code {code}: {errors}"
    elif code == 2 and not (len(sentences) == 1 and sentences[0].startswith("quietmean: ")):
        wrong = f"no single sentence: {errors}"
    elif any(word in errors for word in ("Traceback", "Errno", "pydantic", "input should", "msgspec", "None")):
        wrong = f"words of the program: {errors}"
    return code, errors, wrong


@pytest.mark.parametrize("line", LINES)
def test_with_the_right_files_it_comes_to_its_end(
    line: str, site: Site, studies: tuple[dict[str, str], dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, errors, wrong = ends(site, filled(line, studies[0]), capsys)
    assert (code, wrong) == (0, ""), errors


def mistakes(
    studies: tuple[dict[str, str], dict[str, str]], seed: int, count: int
) -> Iterator[tuple[str, str, str, Change | None]]:
    """A line, what is wrong in it, and the file that is changed, if one is."""
    chance, (first, second) = random.Random(seed), studies
    while count:
        line = chance.choice(LINES)
        what = chance.choice(re.findall(r"\{(.*?)\}", line))
        kind = chance.choice(["of the other study", "of another kind", *CHANGES, *HARMLESS])
        count -= 1
        if kind == "of the other study":
            yield filled(line, {**first, what: second[what]}), f"{what} of the other study", "", None
        elif kind == "of another kind":
            other = chance.choice([each for each in first if each not in (what, "DIGEST")])
            yield filled(line, {**first, what: first[other]}), f"{other} for {what}", "", None
        else:
            yield filled(line, {**first, what: "changed"}), f"{what} {kind}", first[what], {**CHANGES, **HARMLESS}[kind]


def test_a_hundred_at_random(
    site: Site, studies: tuple[dict[str, str], dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {}
    for line, about, name, change in mistakes(studies, SEED, COUNT):
        place, same = site.folder / "changed", True
        if change is not None:
            content = (site.folder / name).read_bytes()
            place.write_bytes(change(content))
            place.chmod(0o600)
            # A receipt is not signed: whoever doubts it computes it anew.
            signed = not about.startswith("receipt") or not about.endswith("changed")
            same = change in HARMLESS.values() or place.read_bytes() == content or not signed
        code, _, wrong = ends(site, line, capsys)
        place.unlink(missing_ok=True)
        if not wrong and code == 0 and not same:
            wrong = "it passes for the right one"
        if wrong:
            faults[f"{line} ({about})"] = wrong
        assert faults == {}


def test_a_document_of_a_later_version_is_told_from_one_of_another_kind(
    site: Site, studies: tuple[dict[str, str], dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    later = site.folder / "changed"
    later.write_bytes(CHANGES["of a later version"]((site.folder / studies[0]["sealed"]).read_bytes()))
    _, errors, _ = ends(site, f"verify words changed --key {studies[0]['key']}", capsys)
    assert "changed was written by another version of quietmean (quietmean " in errors
    later.write_bytes(b"")
    _, errors, _ = ends(site, f"verify words {studies[0]['sealed']} --key changed", capsys)
    assert "key file changed holds no private key" in errors
    later.unlink()
