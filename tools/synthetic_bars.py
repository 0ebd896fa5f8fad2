"""Make the last part of measurements/real-data-bars.md: how near made-up rows are to the records that they are like.

    python tools/synthetic_bars.py

writes that part alone; ``python tools/real_data_bars.py`` has it in its page.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import statsmodels.api as sm
from exact_intervals import Array
from held_intervals import DELTA, workload_of
from page_figures import BEGIN, END, OLDER, made_from
from page_parts import DOCS, row, said_once

from quietmean.core.arrays import Ints
from quietmean.privacy import mu_of_budget
from quietmean.randomness import Seed
from quietmean.statistics import Column, Columns
from quietmean.statistics.kinds.synthetic_table import SyntheticTable
from quietmean.statistics.trees import NoisyTable, PairTree, nearest_parts

PAGE = DOCS / "measurements/real-data-bars.md"
TITLE = "\n## Rows like the records\n"
EPSILONS, SEEDS, SITES = (1.0, 2.0, 4.0), 10, 5
# Columns with more different values are cut into bins.
_MOST_LEVELS = 15
TWO_BAR, THREE_BAR, INSIDE_BAR = 1.25, 1.5, 0.9

HEAD = f"""{TITLE}
`python tools/synthetic_bars.py` makes this part alone. `synthetic-table` of all columns with its default pairs: all of ten
columns or fewer, a chain of more. There are as many rows as records. *{SITES} sites*: the noise of packed sharing when one of
{SITES} colludes, $\\sqrt{{{SITES}/{SITES - 1}}}$ times one trusted curator's. *MST*: one trusted curator who chooses the pairs in
private, as the winner of NIST's contest of 2018 does (McKenna, Miklau and Sheldon, J. Privacy Confid. 11, 2021), with our fit of
its tables and our rows. A third of the budget is for columns, the choice and the pairs each.
*Bootstrap*: as many records drawn with replacement, without privacy; *independent*: exact margins, each column shuffled.
Distances are total variation from the records (0 alike, 1 apart), the mean of all tables of two columns and of three,
{SEEDS} seeds. *Inside*: cells of the pairs that were asked, within the 95 % interval of the noise around the records. Bars:
{TWO_BAR:g} and {THREE_BAR:g} times those of MST, {100 * INSIDE_BAR:.0f} % inside. *Kept*: pairs that tell more than
noise, which rows are made to have; the others are as if independent. With few records for the noise margins are off, and exact
independent columns are nearer.

"""
_HEADS = ("data", "epsilon", "columns", f"{SITES} sites", "MST", "bootstrap", "independent", "kept", "inside", "")


@dataclass(frozen=True, eq=False)
class Population:
    """Records of columns, (rows, columns)."""

    name: str
    columns: Columns
    records: Array


def populations() -> Iterator[Population]:
    """Data that come with statsmodels, all columns."""
    affairs = sm.datasets.fair.load_pandas().data
    affairs["affair"] = (affairs.pop("affairs") > 0).astype(float)
    tables = {
        "extramarital affairs": affairs,
        "a health insurance experiment": sm.datasets.randhie.load_pandas().data,
        "a US election": sm.datasets.anes96.load_pandas().data,
    }
    for name, table in tables.items():
        columns, cells = [], []
        for column in table.columns:
            own, values = table[column].to_numpy(dtype=float), np.unique(table[column])
            few = len(values) <= _MOST_LEVELS
            levels, ends = tuple(f"{value:g}" for value in values), (float(values[0]), float(values[-1]))
            columns.append(Column(name=column, levels=levels) if few else Column(name=column, low=ends[0], high=ends[1]))
            cells.append(np.searchsorted(values, own).astype(float) if few else own)
        yield Population(
            f"{name} (statsmodels, {len(table):,}, {len(columns)} columns)", Columns(columns), np.column_stack(cells)
        )


class Measured:
    """A population with its exact tables, and rows made up from noisy ones."""

    def __init__(self, population: Population) -> None:
        names = population.columns.names
        self.workload = workload_of(population.columns, f"synthetic-table({', '.join(names)})")
        self.tables = SyntheticTable(columns=names).tables(self.workload.declared)
        pairs = [[names.index(axis.column.name) for axis in table.axes] for table in self.tables[len(names) :]]
        self.pairs = [(first, second) for first, second in pairs]
        inside = self.workload.inside(population.records)
        self.cells = np.column_stack([table.axes[0].place(inside) for table in self.tables[: len(names)]])
        self.sizes = [table.size for table in self.tables[: len(names)]]
        self.two, self.three = (list(combinations(range(len(names)), count)) for count in (2, 3))
        self.mean = self.workload.encode(population.records).vector / len(self.cells)
        self.errors = self._released(self.mean, 1.0)[1]

    def _released(self, mean: Array, noise: float) -> tuple[list[Array], list[float]]:
        released = self.workload.decoder().released(mean, noise, float(len(self.cells)))
        if noise:
            return [], [float(np.sqrt(np.diag(released.covariance(table)).mean())) for table in self.tables]
        return [released.mean(table).reshape(table.shape) for table in self.tables], []

    def tree(self, epsilon: float, factor: float, seed: int) -> tuple[PairTree, Array]:
        """A tree of noisy tables, and the noise deviation of a cell of each pair."""
        noise = factor * self.workload.sensitivity / mu_of_budget(epsilon, DELTA) / len(self.cells)
        drawn = np.random.default_rng((seed, round(1000 * factor))).standard_normal(len(self.mean))
        parts, _ = self._released(self.mean + noise * drawn, 0.0)
        noisy, count = [NoisyTable(*each) for each in zip(parts, noise * np.array(self.errors), strict=True)], len(self.sizes)
        tree = PairTree.of(noisy[:count], dict(zip(self.pairs, noisy[count:], strict=True)))
        return tree, noise * np.array(self.errors[count:])

    def mst(self, epsilon: float, seed: int) -> PairTree:
        """A tree by MST with one trusted curator: columns, then a tree chosen by exponential mechanisms, then its pairs."""
        rng, count, columns = np.random.default_rng((seed, 99)), len(self.cells), range(len(self.sizes))
        mu = mu_of_budget(epsilon, DELTA)

        def noisy(places: tuple[int, ...], tables: int) -> NoisyTable:
            # One record changes two cells of each table by one. A third of mu^2 is for all of them.
            error = math.sqrt(2 * tables * 3) / mu / count
            parts = self.table(self.cells, places)
            return NoisyTable((parts + rng.normal(0, error, parts.size)).reshape([self.sizes[one] for one in places]), error)

        alone = [noisy((place,), len(columns)) for place in columns]
        one = [nearest_parts(table.parts) for table in alone]
        apart: dict[tuple[int, ...], float] = {
            pair: count * float(np.abs(self.table(self.cells, pair) - np.outer(one[pair[0]], one[pair[1]]).ravel()).sum())
            for pair in self.two
        }
        # A mechanism of so large an epsilon costs an eighth of its square in rho, and rho is mu^2 / 2. A distance changes by two.
        each = math.sqrt(8 * mu**2 / 6 / (len(columns) - 1))
        together, edges = [*columns], list[tuple[int, ...]]()
        for _ in columns[1:]:
            drawn = {
                pair: distance + 4 / each * rng.gumbel()
                for pair, distance in apart.items()
                if together[pair[0]] != together[pair[1]]
            }
            edges.append(max(drawn, key=lambda pair: drawn[pair]))
            kept, gone = (together[place] for place in edges[-1])
            together = [kept if each_one == gone else each_one for each_one in together]
        return PairTree.of(alone, {(first, second): noisy((first, second), len(edges)) for first, second in edges})

    def rows(self, tree: PairTree, seed: int) -> Ints:
        return tree.draw(len(self.cells), Seed.public("rows of a measurement", seed))

    def table(self, cells: Ints, places: tuple[int, ...]) -> Array:
        sizes = [self.sizes[place] for place in places]
        at = np.ravel_multi_index(tuple(cells[:, place] for place in places), sizes)
        return np.bincount(at, minlength=math.prod(sizes)) / len(cells)

    def apart(self, cells: Ints) -> tuple[float, float]:
        """The mean total variation distances of tables of two and of three columns from those of the records."""
        two, three = (
            float(np.mean([np.abs(self.table(cells, own) - self.table(self.cells, own)).sum() / 2 for own in sets]))
            for sets in (self.two, self.three)
        )
        return two, three

    def inside(self, cells: Ints, errors: Array) -> float:
        """The part of the cells of asked pairs that are within the noise's 95 % interval around the records."""
        off = [
            np.abs(self.table(cells, own) - self.table(self.cells, own)) <= 1.96 * error + 0.5 / len(cells)
            for own, error in zip(self.pairs, errors, strict=True)
        ]
        return float(np.concatenate(off).mean())


def rows_of(population: Population) -> Iterator[str]:
    """The lines of one population."""
    measured = Measured(population)
    count = len(measured.cells)
    rng = np.random.default_rng(1)
    again = measured.apart(measured.cells[rng.integers(0, count, count)])
    alone = measured.apart(np.column_stack([rng.permutation(column) for column in measured.cells.T]))
    for epsilon in EPSILONS:
        found, central, edges, within = [], [], [], []
        for seed in range(SEEDS):
            tree, errors = measured.tree(epsilon, math.sqrt(SITES / (SITES - 1)), seed)
            rows = measured.rows(tree, seed)
            found.append(measured.apart(rows))
            edges.append(len(tree.kept))
            within.append(measured.inside(rows, errors))
            central.append(measured.apart(measured.rows(measured.mst(epsilon, seed), seed)))
        ours, theirs, part = np.mean(found, axis=0), np.mean(central, axis=0), float(np.mean(within))
        for place, (what, bar) in enumerate((("two", TWO_BAR), ("three", THREE_BAR))):
            kept = ours[place] <= bar * theirs[place] and (place or part >= INSIDE_BAR)
            yield row(
                (
                    *(population.name, f"{epsilon:g}", what),
                    *(f"{each[place]:.3f}" for each in (ours, theirs, again, alone)),
                    *((f"{np.mean(edges):.1f}", f"{100 * part:.0f} %") if not place else ("", "")),
                    "kept" if kept else "**low**",
                )
            )


def figures() -> Iterator[tuple[str, float]]:
    """What the part is made from: a tree of three columns of each population."""
    for whole in populations():
        few = Population(whole.name, Columns(list(whole.columns)[:3]), whole.records[:1000, :3])
        tree, errors = Measured(few).tree(1.0, 1.0, 0)
        yield f"rows like {whole.name}", float(errors.sum() + sum((table**2).sum() for table in tree.joint.values()))


def part() -> str:
    """The part of the page."""
    warnings.simplefilter("ignore")
    align = "|---|---|---|" + "---:|" * 6 + "---|"
    lines = said_once([line for population in populations() for line in rows_of(population)], 2)
    return HEAD + "\n".join([row(_HEADS), align, *lines]) + "\n"


def part_of(page: str) -> str:
    """The part in a page that has it, without what follows; "" in any other."""
    _, title, rest = page.partition(TITLE)
    return title + rest.partition(f"\n{BEGIN}")[0].partition(f"\n{OLDER}")[0] if title else ""


def main() -> None:
    there, own = PAGE.read_text(encoding="utf-8"), part()
    old = part_of(there)
    before, end, rest = there.partition(next(mark for mark in (f"\n{OLDER}", f"\n{BEGIN}") if mark in there))
    text = there.replace(old, own) if old else before + own + end + rest
    # All other lines keep what they were made from.
    stated = made_from(text) | {what: float(f"{value:.6g}") for what, value in figures()}
    PAGE.write_text(f"{text.partition(BEGIN)[0]}{BEGIN}{json.dumps(stated)}{END}", encoding="utf-8")


if __name__ == "__main__":
    main()
