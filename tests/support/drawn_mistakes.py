"""Mistakes that a seed draws from the parser and from the kinds of file."""

from __future__ import annotations

import random
import re
import shlex
import string
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from quietmean.cli.common import GROUPS
from quietmean.cli.main import COMMANDS
from support.hostile_numbers import NUMBERS, kinds
from support.mistaken import ALL_NAMES, COMMON, DOCUMENTS, PLAIN, RIGHT, Mistake, arguments, named
from system.test_any_file import LINES

_GIVEN = tomllib.loads((Path(__file__).parents[1] / "data" / "drawn_mistakes.toml").read_text("utf-8"))
# Options that have an address, a day or a moment, with a line in which they stand.
WITH_ADDRESS = {
    "accept": ("--address",), "key new": ("--address",),
    "join": ("--listen",), "check": ("--listen",), "serve relay": ("--listen",),
}  # fmt: skip
COMMITTEE = "study new 'mean(age in 0..100)' --committee 4 --out new.toml --contribute-by {}"
WITH_DATE = {
    "site approve": RIGHT["site approve"].replace("2090-01-01", "{}"),
    "study new --start-by": f"{LINES['study new']} --start-by {{}}",
    "study new --first-deadline": f"{LINES['study new']} --transport folder --first-deadline {{}} --deadline-interval 60",
    "study new --contribute-by": COMMITTEE,
}
# The kinds that stand in the place of a file of each option; a table of a database may be any, and each line of JSON a row.
STUDIES = {"study", "sealed", "session", "sealed session"}
TABLES = {"table", "sqlite", "ledger", "store", "audit log", "xlsx", "parquet", "json list"}
TAKEN: dict[str, set[str]] = {
    "--study": STUDIES, "STUDY": STUDIES, "--data": TABLES, "--roster": {"roster"}, "--key": {"key", "study keys"},
    "--owner-key": {"key"}, "--policy": {"policy", "empty", "blank"}, "--plan": {"plan"}, "--invitation": {"invitation"},
    "INVITATION": {"invitation"}, "ENTRIES": {"entry"}, "FILES": {"contribution"}, "--execution": {"receipt", "session receipt"},
    "--ledger": {"ledger"}, "--store": {"store", "folder"}, "--replaces": {"key"},
    "--admit": {"roster", "sealed", "sealed session"},
    "--own-keys": {"key"}, "--observed": set(), "--against": {"receipt", "session receipt"}, "--log": {"audit log"},
    "--remove": {"store"}, "--certificate": set(), "--private-key": set(), "--approval": {"approval"}, "--after": {"sealed"},
    "--dictionary": {"table", "xlsx", "parquet"}, "--program": {
        "text", "empty", "blank", "json list", "table", "xlsx", "parquet", "sqlite", "log"},
}  # fmt: skip
# What a command begins where it is not there yet: a key, or the ledger of a new desk.
MADE = {("key new", "--key"), ("accept", "--key"), ("site desk", "--ledger")}
# Where a command writes.
WRITTEN = {"--out", "--receipt", "--report", "--table", "--store"}


class Drawer:
    """Draws mistakes, each kind as often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ways: dict[str, Callable[[], Mistake | None]] = {
            "unknown option": self._unknown_option,
            "misspelt option": self._misspelt_option,
            "option without value": self._without_value,
            "value of another type": self._other_type,
            "surplus value": self._surplus,
            "missing required": self._missing,
            "out of range": self._range,
            "contradiction": self._contradiction,
            "twice": self._twice,
            "command": self._command,
            "kind of file": self._file,
            "plain file": self._plain_file,
            "output": self._output,
            "address": self._address,
            "quoting": self._quoting,
            "date": self._date,
            "comma": self._comma,
        }

    def draw(self, count: int) -> list[Mistake]:
        """So many different ones, with the kinds in turn; those of files, of which there are most, twice as often."""
        found: dict[str, Mistake] = {}
        turns = [*self.ways, "kind of file", "kind of file", "plain file", "misspelt option"]
        while len(found) < count:
            for way in turns:
                mistake = self.ways[way]()
                if mistake is not None and len(found) < count:
                    found.setdefault(f"{mistake.line} {mistake.files}", mistake)
        return list(found.values())

    def _given(self, table: str) -> tuple[str, str]:
        """A command, and options behind its right line."""
        return self.random.choice([(command, more) for command, each in _GIVEN[table].items() for more in each])

    def _line(self, *wanted: str) -> tuple[str, list[str]]:
        command = self.random.choice(wanted or tuple(COMMANDS))
        return command, shlex.split(RIGHT[command])

    def _unknown_option(self) -> Mistake:
        command, words = self._line()
        others = [name for name in ALL_NAMES if name not in named(command) and name not in COMMON]
        name = self.random.choice([*others, "--verbose", "--debug", "--input", "--output", "--file", "-o", "-f", "--seed-value"])
        if name in named(command):
            name = "--frobnicate"
        value = self.random.choice(([], ["3"], ["a.csv"]))
        return Mistake("unknown option", command, (*words, name, *value), (name,))

    def _misspelt(self, word: str) -> str:
        place = self.random.randrange(len(word))
        letter = self.random.choice(string.ascii_lowercase)
        return self.random.choice(
            (
                word[:place] + word[place + 1 :],
                word[:place] + letter + word[place:],
                word[:place] + word[place : place + 2][::-1] + word[place + 2 :],
                word[:place] + letter + word[place + 1 :],
                word + "s",
            )
        )

    def _misspelt_option(self) -> Mistake | None:
        command, words = self._line()
        there = [place for place, word in enumerate(words) if word in named(command) and word.startswith("--")]
        if not there:
            return None
        place = self.random.choice(there)
        wrong = "--" + self._misspelt(words[place].removeprefix("--"))
        if wrong in named(command) or wrong in COMMON or not re.fullmatch(r"--[a-z][a-z-]*", wrong):
            return None
        return Mistake("misspelt option", command, (*words[:place], wrong, *words[place + 1 :]), (wrong,))

    def _without_value(self) -> Mistake | None:
        command, words = self._line()
        own = [one for one in arguments(command) if one.names[0].startswith("--") and one.token_count()[0] and one.index is None]
        if not own:
            return None
        name = self.random.choice(own).names[0]
        if name in words:
            return None
        end = [name] if self.random.random() < 0.5 or "--json" not in named(command) else [name, "--json"]
        return Mistake("option without value", command, (*words, *end), (name,))

    def _with(self, command: str, words: Sequence[str], name: str, value: Sequence[str]) -> tuple[str, ...]:
        """The line with this option, in the place where it stands, or at the end."""
        if name in words:
            place = words.index(name)
            return (*words[: place + 1], *value, *words[place + 1 + named(command)[name].token_count()[0] :])
        return (*words, name, *value)

    def _other_type(self) -> Mistake | None:
        command, words = self._line()
        numeric = [one for one in arguments(command) if kinds(one.hint) & NUMBERS and str not in kinds(one.hint)]
        if not numeric:
            return None
        one = self.random.choice(numeric)
        name, wrong = one.names[0], self.random.choice(_GIVEN["no_numbers"])
        value = [wrong] + ["1"] * (one.token_count()[0] - 1)
        return Mistake("value of another type", command, self._with(command, words, name, value), (name, f"'{wrong}'"))

    def _surplus(self) -> Mistake:
        command, words = self._line(*(one for one in COMMANDS if one != "result"))
        wrong = self.random.choice(("extra", "more.csv", "7", "yes", "study2.sealed"))
        if command in ("study seal", "study combine", "result"):
            words = [*words, "--json"]
        place = self.random.choice((len(words), len(words), len(command.split())))
        if command in ("study seal", "study combine", "result", "serve relay"):
            place = len(words)
        return Mistake("surplus value", command, (*words[:place], wrong, *words[place:]), (wrong, *words[len(command.split()) :]))

    def _missing(self) -> Mistake | None:
        command, words = self._line()
        required = [one for one in arguments(command) if one.required and (one.index is not None or one.names[0] in words)]
        if not required:
            return None
        one = self.random.choice(required)
        name = one.names[0]
        if one.index is not None and name not in words:
            place = len(command.split()) + one.index
            rest = words[:place] if one.index == 0 or "ENTRIES" in one.names or "FILES" in one.names else None
            while rest is not None and place < len(words) and not words[place].startswith("--"):
                place += 1
            line = (
                (*words[: len(command.split()) + one.index], *words[place:])
                if rest is not None
                else (*words[:place], *words[place + 1 :])
            )
        else:
            place = words.index(name)
            line = (*words[:place], *words[place + 1 + max(1, one.token_count()[0]) :])
        return Mistake("missing required", command, line, (name, name.lstrip("-").upper(), "STUDY", "DATA", "FILE"))

    def _range(self) -> Mistake:
        command, more = self._given("ranges")
        name, *value = shlex.split(more)
        bare = name.lstrip("-")
        parts = (f"'{part}'" for each in value for part in each.split(","))
        words = self._with(command, shlex.split(RIGHT[command]), name, value)
        return Mistake("out of range", command, words, (name, bare, bare.replace("-", "_"), *value, *parts))

    def _contradiction(self) -> Mistake:
        command, more = self._given("contradictions")
        added = shlex.split(more)
        words = (*shlex.split(RIGHT[command]), *added)
        return Mistake(
            "contradiction", command, words, tuple(word.lstrip("-") for word in added) + tuple(re.findall(r"\w+", more))
        )

    def _twice(self) -> Mistake | None:
        command, words = self._line()
        there = [
            place for place, word in enumerate(words)
            if word in named(command) and word.startswith("--") and not named(command)[word].token_count()[1]
            and named(command)[word].token_count()[0] == 1
        ]  # fmt: skip
        if not there:
            return None
        place = self.random.choice(there)
        return Mistake("twice", command, (*words, words[place], words[place + 1]), (words[place],))

    def _command(self) -> Mistake | None:
        command = self.random.choice(tuple(COMMANDS))
        rest = shlex.split(RIGHT[command])[len(command.split()) :]
        first = [line.split()[0] for line in COMMANDS]
        way = self.random.randrange(4)
        if way == 0:
            wrong = [self.random.choice(_GIVEN["foreign"])]
        elif way == 1:
            parts = command.split()
            wrong = [*parts[:-1], self._misspelt(parts[-1])]
        elif way == 2:
            wrong = [self.random.choice(tuple(GROUPS)), command.split()[-1]]
        else:
            wrong = [command.split()[-1].upper() if self.random.random() < 0.5 else command.replace(" ", "-").capitalize()]
        if " ".join(wrong) in COMMANDS or (len(wrong) == 1 and wrong[0] in first) or not all(wrong):
            return None
        return Mistake("command", command, (*wrong, *rest), (wrong[-1],))

    def _places(self, command: str, words: Sequence[str]) -> list[tuple[int, str]]:
        """Which words of a line are files that are read, and of which option."""
        found, lead = [], len(command.split())
        positions = {one.index: one for one in arguments(command) if one.index is not None}
        for place, word in enumerate(words):
            before = words[place - 1]
            if before in TAKEN and before.startswith("--") and named(command)[before].token_count()[0] == 1:
                found.append((place, before))
            elif lead <= place < lead + len(positions) and positions[place - lead].names[0] in TAKEN and not word.startswith("-"):
                found.append((place, positions[place - lead].names[0]))
        return found

    def _wrong_file(self, kinds_of: Sequence[str], way: str) -> Mistake | None:
        command, words = self._line()
        places = self._places(command, words)
        missing = [name for name in TAKEN if name in named(command) and name.startswith("--") and name not in words]
        missing = [name for name in missing if named(command)[name].index is None]
        if self.random.random() < 0.3 and missing:
            name = self.random.choice(missing)
            words, place = [*words, name, "x"], len(words) + 1
        elif places:
            place, name = self.random.choice(places)
        else:
            return None
        kind = self.random.choice([one for one in kinds_of if one not in TAKEN[name]])
        if name in WRITTEN and kind == "missing":
            return None
        made = (command, name) in MADE and "missing" in kind
        if made or (command, kind) == ("key revoke", "revocation"):
            return None
        suffix = Path(words[place]).suffix or ".dat"
        stem = {"umlaut missing": "für Köln", "text": "my file"}.get(kind) or self.random.choice(("given", "my given"))
        file = f"{stem}{suffix}"
        return Mistake(
            f"{way}: {kind}",
            command,
            (*words[:place], file, *words[place + 1 :]),
            (file, name, name.lstrip("-")),
            ((file, kind),),
        )

    def _file(self) -> Mistake | None:
        return self._wrong_file(list(DOCUMENTS), "kind of file")

    def _plain_file(self) -> Mistake | None:
        return self._wrong_file(PLAIN, "plain file")

    def _output(self) -> Mistake | None:
        command, words = self._line()
        outs = [name for name in ("--out", "--receipt", "--report", "--table") if name in named(command)]
        if not outs or command == "result":
            return None
        name = self.random.choice(outs)
        kind = self.random.choice(("there", "folder", "no folder", "suffix", "input"))
        files: tuple[tuple[str, str], ...] = ()
        if kind == "there":
            place, files = "taken.csv", (("taken.csv", "table"),)
        elif kind == "folder":
            place, files = "taken", (("taken", "folder"),)
        elif kind == "no folder":
            place = "no such/place.json"
        elif kind == "suffix":
            place = "answer.pdf"
        else:
            place = next(
                (word for word in words if (Path(word).suffix and "." in word and not word.startswith("new."))), "ages.csv"
            )
        if name == "--out" and command in ("run", "demo", "study vouchers") and kind in ("no folder", "suffix", "folder"):
            return None
        return Mistake(
            f"output: {kind}",
            command,
            self._with(command, words, name, [place]),
            (place, name),
            files,
        )

    def _address(self) -> Mistake:
        command = self.random.choice(tuple(WITH_ADDRESS))
        (name,) = WITH_ADDRESS[command]
        wrong = self.random.choice(_GIVEN["addresses"])
        return Mistake("address", command, self._with(command, shlex.split(RIGHT[command]), name, [wrong]), (wrong or "''", name))

    def _quoting(self) -> Mistake | None:
        command, words = self._line()
        values = [place for place in range(len(command.split()), len(words)) if not words[place].startswith("--")]
        if not values:
            return None
        place, way = self.random.choice(values), self.random.randrange(4)
        word = words[place]
        if way == 0:
            new = ["my", word]
            if command in ("study seal", "study combine", "result"):
                return None
        elif way == 1:
            new = [f"“{word}”"]
        elif way == 2:
            if Path(word).suffix == "" and ":" not in word:
                return None
            new = [f'"{word}"']
        else:
            if not words[place - 1].startswith("--"):
                return None
            return Mistake(
                "quoting",
                command,
                (*words[: place - 1], f"—{words[place - 1][2:]}", *words[place:]),
                (f"—{words[place - 1][2:]}",),
            )
        return Mistake("quoting", command, (*words[:place], *new, *words[place + 1 :]), (word, *new))

    def _date(self) -> Mistake:
        way, wrong = self.random.choice(tuple(WITH_DATE)), self.random.choice(_GIVEN["dates"])
        words = tuple(word.replace("{}", wrong) for word in shlex.split(WITH_DATE[way]))
        command = way.partition(" --")[0]
        option = next(word for word in words if word in ("--until", "--start-by", "--first-deadline", "--contribute-by"))
        return Mistake("date", command, words, (option,))

    def _comma(self) -> Mistake | None:
        command, words = self._line()
        numeric = [one for one in arguments(command) if float in kinds(one.hint)]
        if not numeric:
            return None
        one = self.random.choice(numeric)
        name = one.names[0]
        wrong = self.random.choice(("0,5", "1,25", "0,110", "1.000,0", "1'000", "1_0,5", "1;2"))
        value = [wrong] * (one.token_count()[0] if self.random.random() < 0.5 else 1)
        return Mistake("comma", command, self._with(command, words, name, value), (name, name.lstrip("-"), wrong))
