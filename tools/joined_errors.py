"""Make measurements/joined-errors.md: errors of studies by ``quietmean join`` over the standard errors they state.

    python tools/joined_errors.py run STUDIES.jsonl [--protocol NAME]... [--studies N] [--at-once N]
    python tools/joined_errors.py page STUDIES.jsonl

``run`` appends one line for each study, and goes on where the file ends. Every protocol that a study of statistics can be planned
for takes part, with four or five parties whose numbers of records differ up to forty times. In every third study one process is
killed at a random moment and started again; in every sixth one is killed for good, where the protocol allows that some leave. The
truth is what plain libraries compute from the very records of the parties that the result says were counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from exact_intervals import Array
from joined_studies import EPSILON, MISSING, RECORDS, Asked, data_sets, split
from joins import Joined, Kill, Machine
from page_figures import ending
from page_parts import DOCS, row
from scipy import stats

from quietmean.planning import Plan
from quietmean.protocols import Mechanism, get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.traits import ANY_DOMAIN

PAGE = DOCS / "measurements/joined-errors.md"
SEED, STUDIES = 20_260, 60
LOW, HIGH = 0.8, 1.2
# In so many studies of a protocol each party makes the plan by itself, and writes the pages that show the answers.
WHOLE = 1
# From which part on a party counts as whole.
WHOLE_PART = 0.999
# Of intervals for the root mean square.
LEVEL = 0.999
# What an error may be without noise, in units of what is estimated.
EXACT = 1e-6
NOBODY, RESTARTED, GONE = "nobody", "restarted", "gone"
DIFFERENT = "parties have different results"
# Terms of which the whole data set says nothing: how many records there are, and the cells that were made missing.
OF_THE_RECORDS = ("count", "sum")


HEAD = f"""# Errors of joined studies over the errors they state

This page is made by `python tools/joined_errors.py page STUDIES.jsonl` from what `run` measured; do not edit it by
hand. The noise is secret, so figures differ from run to run by as much as their intervals say.

{STUDIES} studies of each protocol that a study of statistics can be planned for (`priv-unit-g` takes unit vectors
only). Every party is a process of `quietmean join` with a key, a file, a
store and a ledger of its own; they talk TLS over loopback. Four or five parties, {RECORDS:,} real records in all
(kidney transplants, arrests after release, political regimes, a US election, tumours, wines) of which one party has
up to forty times as many as another, {100 * MISSING:g} % of all cells missing, $\\varepsilon = {EPSILON:g}$, $\\delta
= 10^{{-6}}$; all other options are the defaults. In every third study one process is killed with SIGKILL at a random
moment and started again up to two seconds later; in every sixth one is killed for good, where the protocol allows
that some leave. *Came back* and *left* count those
whom it hit before they were done.

*Root mean square*: of (estimate - truth) / standard error of the noise as the answer shows it, over all terms of all
answers; truth is what scipy, statsmodels and numpy compute from the very records of the parties that the receipt says
are counted. The interval ({100 * LEVEL:g} %) takes the values of one study to depend on each other in any way. A true
error has {LOW:g} to {HIGH:g}, and 1 in the interval: *kept*. *95 %*: how often the interval of the noise holds the
truth. *Population*: the same mean, of (estimate - that of the whole data set) / standard error for the population,
for terms that do not grow with the number of records.

Where parties pass on what they hold (`gossip`, `inca`, `muffliato`), who leaves in between counts in part, and others
whose values it took along: no set of records has this mean; each answer has the flag `in-part`, and a note says how
much of each party counts. Such studies are a column of their own, *some in part*, where truth is of all who are
counted as if they counted whole: it says how much that matters (above all to sums and counts, which are of as many
records as count), and no standard error of the noise does.

| protocol | studies | came back | left | no result | values | root mean square | 95 % | population | some in part | |
|---|---:|---:|---:|---:|---:|---|---:|---|---|---|
"""

KINDS = """

The same by kind of statistic, over all protocols with noise:

| kind | values | root mean square | 95 % | population |
|---|---:|---|---:|---|
"""


@dataclass(frozen=True)
class Value:
    """A term of an answer: what was released of it, and what it is for the records counted and for the whole data set."""

    kind: str
    term: str
    estimate: float
    error: float
    noise: tuple[float, float] | None
    truth: float
    total_error: float | None
    total: tuple[float, float] | None
    population: float

    @property
    def z(self) -> float:
        return (self.estimate - self.truth) / self.error


@dataclass(frozen=True)
class Story:
    """What happened in a study, and its values; ``failed`` is what the parties said where they have none."""

    protocol: str
    study: int
    data: str
    parties: int
    trouble: str
    struck: bool
    counted: tuple[int, ...]
    seconds: float
    values: tuple[Value, ...]
    unknown: int
    failed: tuple[str, ...] = ()
    # How much of each party counts.
    parts: tuple[float, ...] = ()

    @classmethod
    def read(cls, line: str) -> Story:
        raw = json.loads(line)
        given = {name: tuple(raw.get(name, ())) for name in ("counted", "failed", "parts")}
        return cls(**{**raw, **given, "values": tuple(Value(**one) for one in raw["values"])})


def joinable(name: str) -> bool:
    """Can a study of statistics be planned for it?"""
    kind = get_protocol(name)
    return kind.TRAITS.domain == ANY_DOMAIN and (kind.TRAITS.has_transcript or kind.design is not Mechanism.design)


@cache
def planned(asked: Asked, name: str, dropouts: float, parties: int) -> Plan:
    return asked.study(name, dropouts).plan(parties, no_privacy=not get_protocol(name).TRAITS.private)


def troubles(kind: type[Mechanism], study: int) -> str:
    if study % 3 == 1:
        return RESTARTED
    return GONE if study % 6 == 2 and kind.TRAITS.tolerates_dropouts else NOBODY


async def one_study(machine: Machine, asked: Asked, name: str, study: int, usual: int, folder: Path) -> Story:
    """``usual``: how many events a party reports in a study of this protocol."""
    kind = get_protocol(name)
    rng = np.random.default_rng((SEED, study, *name.encode()))
    parties = 5 if study % 4 == 0 else 4
    tables = split(asked.drawn(rng), parties, rng)
    trouble = troubles(kind, study)
    dropouts = 1 / parties if trouble == GONE else 0.0
    kill = _kill(trouble, _servers(asked, name, dropouts, parties), parties, usual, rng)
    begun = time.monotonic()
    more = ["--a-priori-above-target"] if kind.TRAITS.private else ["--no-privacy"]
    if study >= WHOLE:
        plan = folder / "plan.json"
        plan.write_text(json.dumps(planned(asked, name, dropouts, parties).to_json()))
        more = [*more, "--plan", str(plan)]
    end = await machine.study(
        folder,
        asked.text(name, dropouts),
        [asked.csv(one) for one in tables],
        kill=kill,
        more=[*more, *_unbounded(kind)],
        answer_only=study >= WHOLE,
    )
    seconds = time.monotonic() - begun
    story = Story(name, study, asked.name, parties, trouble, end.struck, (), seconds, (), 0, _lost(end, kill))
    if not end.documents:
        return story
    counted, parts, same = _counted(end, kind)
    records = np.vstack([tables[party] for party in counted])
    values, unknown = _values(asked, end.documents[min(end.documents)], records)
    failed = story.failed if same else (*story.failed, DIFFERENT)
    return replace(story, counted=counted, parts=parts, values=tuple(values), unknown=unknown, failed=failed)


def _unbounded(kind: type[Mechanism]) -> list[str]:
    """No budget holds what is not known beforehand."""
    return [] if kind.TRAITS.keeps_target else ["--no-ledger"]


def _servers(asked: Asked, name: str, dropouts: float, parties: int) -> frozenset[int]:
    """Parties that a result needs."""
    return planned(asked, name, dropouts, parties).protocol.traits.indispensable


def _kill(trouble: str, servers: frozenset[int], parties: int, usual: int, rng: np.random.Generator) -> Kill | None:
    if trouble == NOBODY:
        return None
    whom = [party for party in range(parties) if trouble == RESTARTED or party not in servers]
    away = float(rng.uniform(0.1, 2.0)) if trouble == RESTARTED else None
    return Kill(int(rng.choice(whom)), int(rng.integers(0, usual)), float(rng.uniform(0, 0.3)), away)


def _lost(end: Joined, kill: Kill | None) -> tuple[str, ...]:
    """What those said who have no result though they were not killed for good."""
    gone = {kill.party} if kill is not None and kill.away is None and end.struck else set()
    return tuple(said.strip().splitlines()[-1] for party, said in end.failures.items() if party not in gone)


def _counted(end: Joined, kind: type[Mechanism]) -> tuple[tuple[int, ...], tuple[float, ...], bool]:
    """Who, and in which part, as the first receipt says; and whether all say the same where the result is one for all."""
    loaded = [Execution.load(end.receipts[party]) for party in sorted(end.documents)]
    receipts = [one for one in loaded if isinstance(one, Execution)]
    counted = [tuple(np.flatnonzero(one.contributors()).tolist()) for one in receipts]
    answers = {json.dumps(document["statistics"], sort_keys=True) for document in end.documents.values()}
    parts = tuple(receipts[0].parts.tolist())
    return counted[0], parts, not kind.TRAITS.releases_are_public or len(set(counted)) == len(answers) == 1


def _values(asked: Asked, document: dict[str, Any], records: Array) -> tuple[list[Value], int]:
    """All terms whose truth is known, and how many of them the answer does not tell."""
    truths, population = asked.truths(records), asked.truths(asked.records)
    found, unknown = [], 0
    for answer in document["statistics"]:
        for term, truth in truths[answer["name"]].items():
            estimate, error = _of(answer["estimate"], term), _of(answer["standard_error"], term)
            if estimate is None or error is None:
                unknown += 1
                continue
            whole = population[answer["name"]][term]
            noise, total = _of(answer["interval_noise"], term), _of(answer["interval_population"], term)
            total_error = _of(answer["standard_error_population"], term)
            found.append(Value(answer["kind"], term, estimate, error, noise, truth, total_error, total, whole))
    return found, unknown


def _of(given: Any, term: str) -> Any:
    return given.get(term) if isinstance(given, dict) else given


# --- running -----------------------------------------------------------------------------------------------------------------


async def run(path: Path, names: Sequence[str], studies: Sequence[int], at_once: int) -> None:
    """Append what is not there yet."""
    done = {(one.protocol, one.study) for one in stories(path)}
    usual: dict[str, int] = {}
    waiting = [(name, study) for study in studies for name in names if (name, study) not in done]
    sets = data_sets()

    async def work(machine: Machine) -> None:
        while waiting:
            name, study = waiting.pop(0)
            folder = Path(tempfile.mkdtemp(prefix="joined-"))
            try:
                story = await one_study(machine, sets[study % len(sets)], name, study, usual.setdefault(name, 7), folder)
                usual[name] = _events(folder, usual[name])
            finally:
                shutil.rmtree(folder)
            with path.open("a") as file:
                file.write(json.dumps(asdict(story)) + "\n")

    async with Machine.ready() as machine:
        await asyncio.gather(*(work(machine) for _ in range(at_once)))


def _events(folder: Path, known: int) -> int:
    """The fewest that a party had of one that ended, without the result itself."""
    counts = [path.read_bytes().count(b"\n") for path in folder.glob("site-*/events.jsonl")]
    return max(min(counts, default=known) - 1, 2)


def stories(path: Path) -> list[Story]:
    return [Story.read(line) for line in path.read_text().splitlines()] if path.exists() else []


# --- measuring ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A root mean square over ``values``, and an interval that takes those of one study to be anything but independent."""

    values: int
    root: float
    low: float
    high: float

    @classmethod
    def of(cls, studies: Iterable[Sequence[float]]) -> Mean | None:
        """The mean of the values of each study. None where there are none; no interval of a single study."""
        found = [np.square(one) for one in studies if len(one)]
        if not found:
            return None
        sums, sizes = np.array([one.sum() for one in found]), np.array([one.size for one in found])
        square, count = float(sums.sum() / sizes.sum()), len(found)
        left = sums - square * sizes
        error = math.sqrt(float((left**2).sum()) * count / max(count - 1, 1)) / float(sizes.sum())
        reach = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error if count > 1 else math.inf
        return cls(int(sizes.sum()), math.sqrt(square), math.sqrt(max(square - reach, 0.0)), math.sqrt(square + reach))

    @property
    def kept(self) -> bool:
        return LOW <= self.root <= HIGH and self.low <= 1 <= self.high

    def __str__(self) -> str:
        return f"{self.root:.2f} ({self.low:.2f} to {self.high:.2f})"


def in_part(story: Story) -> bool:
    """Do some records count less than others?"""
    return any(0 < part < WHOLE_PART for part in story.parts)


def noisy(value: Value) -> bool:
    return value.error > 0


def of_population(value: Value) -> bool:
    cell = value.kind == "crosstab" and ":" in value.term
    given = value.total_error is not None and math.isfinite(value.population)
    return given and not cell and value.kind not in OF_THE_RECORDS and value.term != "missing"


def errors(given: Iterable[Story]) -> Mean | None:
    """Mean square of (estimate - truth) / standard error of the noise."""
    return Mean.of([value.z for value in story.values if noisy(value)] for story in given)


def total_errors(given: Iterable[Story]) -> Mean | None:
    """Mean square of (estimate - that of the whole data set) / standard error for the population."""
    return Mean.of(
        [(value.estimate - value.population) / (value.total_error or math.nan) for value in story.values if of_population(value)]
        for story in given
    )


def held(given: Iterable[Story]) -> str:
    """How often the interval of the noise holds the truth."""
    found = [
        value.noise[0] - EXACT * abs(value.truth) <= value.truth <= value.noise[1] + EXACT * abs(value.truth)
        for story in given
        for value in story.values
        if value.noise is not None
    ]
    return f"{100 * float(np.mean(found)):.1f} %" if found else "-"


def protocol_line(name: str, given: Sequence[Story]) -> str:
    """One line of the first table."""
    whole, part = [one for one in given if not in_part(one)], [one for one in given if in_part(one)]
    killed = [sum(one.struck and one.trouble == trouble for one in given) for trouble in (RESTARTED, GONE)]
    lost = sum(not one.values for one in given)
    measured, apart, total = errors(whole), errors(part), total_errors(whole)
    if measured is None:
        most = max((abs(v.estimate - v.truth) / max(abs(v.truth), 1.0) for one in whole for v in one.values), default=math.inf)
        root, verdict, values = f"no noise; error at most {most:.0e}", most <= EXACT, sum(len(one.values) for one in whole)
    else:
        root, verdict, values = str(measured), measured.kept, measured.values
    cells = [f"`{name}`", len(given), *killed, lost, values, root, held(whole), total or "-", apart or "-"]
    return row([*cells, "kept" if verdict else "**not kept**"])


def kind_line(kind: str, given: Iterable[Story]) -> str:
    """One line of the second table."""
    own = [replace(one, values=tuple(value for value in one.values if value.kind == kind)) for one in given]
    measured, total = errors(own), total_errors(own)
    return row((f"`{kind}`", measured.values if measured else 0, measured or "-", held(own), total or "-"))


def page(given: Sequence[Story]) -> str:
    names = sorted({one.protocol for one in given})
    whole = [one for one in given if not in_part(one) and any(map(noisy, one.values))]
    kinds = sorted({value.kind for one in whole for value in one.values})
    first = [protocol_line(name, [one for one in given if one.protocol == name]) for name in names]
    return HEAD + "\n".join(first) + KINDS + "\n".join(kind_line(kind, whole) for kind in kinds) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("path", type=Path)
    running.add_argument("--protocol", action="append")
    running.add_argument("--studies", type=int, default=STUDIES)
    running.add_argument("--at-once", type=int, default=3)
    commands.add_parser("page").add_argument("path", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        names = given.protocol or [name for name in sorted(registry()) if joinable(name)]
        asyncio.run(run(given.path, names, range(given.studies), given.at_once))
    else:
        PAGE.write_text(page(stories(given.path)) + ending(f"measurements/{PAGE.name}"))


if __name__ == "__main__":
    main()
