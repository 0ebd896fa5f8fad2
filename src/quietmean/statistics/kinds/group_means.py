"""Means of a column in groups: Welch's t-test, his analysis of variance, and the standardised difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from quietmean.core.column_blocks import BLOCK_SIZE
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.schema import parameter
from quietmean.statistics.columns import Column, Columns
from quietmean.statistics.compared import difference_of
from quietmean.statistics.delta_method import SmoothTerm, spread
from quietmean.statistics.estimate import Estimate, Flag, HypothesisTest, f_test, most_of, satterthwaite, t_test
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.features import ColumnBlock, Crossed
from quietmean.statistics.features.block import Summary, estimate_of_mean, moved_block, present_in, summary
from quietmean.statistics.fields import cluster_field
from quietmean.statistics.influence_bounds import Around, MovedMoments
from quietmean.statistics.kinds.means import PARTIES
from quietmean.statistics.random_effects import AcrossSites, SiteMeans, differences, site_column
from quietmean.statistics.scenario import SyntheticRecords
from quietmean.statistics.statistic import Feature, Released
from quietmean.statistics.survey_design import Part, Score, estimates_of
from quietmean.statistics.two_samples import COHEN_D, SMD, difference_of_means
from quietmean.statistics.weights import METHOD as METHOD_OF_WEIGHTS
from quietmean.statistics.weights import Weighable

DIFFERENCE = "difference"
DESIGN_T = "design-based t test"
WELCH_T, WELCH_ANOVA = "Welch's t test", "Welch's analysis of variance"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GroupMeans(Weighable):
    """The mean of a column in each group, and of two groups the ``difference`` (second minus first) and the same
    standardised: ``smd`` over the root of the mean of both variances, ``cohen-d`` over that of the pooled one.

    Tests: ``t-test`` of two groups (Welch), ``anova`` of all (Welch, Biometrika 38, 1951); with the noise counted in. A group
    that noise hides is left out and flagged. With ``cluster``, a column of public sites, means and the difference within sites,
    over all sites like these (:mod:`~quietmean.statistics.random_effects`).
    """

    name = "group-means"
    summary = "means of a column in groups, with t-test and analysis of variance"
    by_place = ("column", "by")
    expects = ("difference", "smd", "sd-between")

    column: str = parameter(help="the column")
    by: str = parameter(help="the column whose levels are the groups")
    cluster: str | None = cluster_field()

    def synthesize(self, scenario: SyntheticRecords) -> None:
        difference, smd = scenario.expected("difference"), scenario.expected("smd")
        spread = float(scenario.values[self.column].std())
        apart = (difference / spread if spread > 0 else 0.0) if difference is not None else smd or 0.0
        if apart and len(scenario.columns[self.by].categories) == 2:
            scenario.correlate(self.column, [scenario.standardised(self.by)], [apart * float(scenario.values[self.by].std())])
        if self.cluster is not None:
            scenario.shift_sites(self.column, self.cluster, scenario.expected("sd-between"))

    def features(self, columns: Columns) -> tuple[Feature, ...]:
        return (self._block(columns),)

    def _block(self, columns: Columns) -> ColumnBlock:
        column, by = columns.number(self.column), columns.category(self.by)
        if self.cluster is None:
            return ColumnBlock(column, by, compared=True)
        return ColumnBlock(column, Crossed(by, site_column(self, columns, self.cluster, self.by, self.column)))

    def days_of(self, column: Column, estimates: Estimates) -> tuple[str, ...]:
        # Of two groups the last terms are a length, and two without a unit.
        return (
            tuple(term for term in estimates.terms if term not in (DIFFERENCE, SMD, COHEN_D))
            if column.name == self.column
            else ()
        )

    def compared(self, columns: Columns) -> dict[str, str]:
        return difference_of(columns.category(self.by), DIFFERENCE, SMD, COHEN_D)

    def moved(self, around: Around, columns: Columns) -> dict[str, float]:
        if self.cluster is not None or self.weight is not None:
            return {}
        block, groups = self._block(columns), columns.category(self.by).categories
        half, own = block.column.width / 2, [moved_block(around, block, index) for index in range(len(groups))]
        moved = {group: half * float(block.means[0]) for group, block in zip(groups, own, strict=True) if block is not None}
        if len(groups) == 2 and len(moved) == 2:
            moved |= {DIFFERENCE: sum(moved.values())} | dict.fromkeys(
                (SMD, COHEN_D), moved_smd([each for each in own if each is not None])
            )
        return moved

    def decode(self, released: Released, columns: Columns) -> Estimates:
        block = self._block(columns)
        column, groups = block.column, columns.category(self.by).categories
        if self.cluster is not None:
            return self._of_sites(released, block, groups, columns.category(self.cluster).categories)
        summaries = {group: summary(released, block, index) for index, group in enumerate(groups)}
        present = {group: summary for group, summary in summaries.items() if summary is not None}
        rows = [estimate_of_mean(group, summary, column) for group, summary in summaries.items()]
        flags = [
            left_out(f"group {group}", (group,), released, block, index)
            for index, group in enumerate(groups)
            if group not in present
        ]
        tests: dict[str, HypothesisTest] = {}
        if len(groups) == 2:
            first, second = (summaries[group] for group in groups)
            rows.append(_difference(first, second, column))
            rows.append(difference_of_means(first, second, column, flags))
            rows.append(difference_of_means(first, second, column, flags, COHEN_D, pooled=True))
            if first is not None and second is not None:
                tests["t-test"] = welch_t(first, second)
        if len(present) >= 2:
            tests["anova"] = welch_anova(list(present.values()))
        parties = columns.unit == PrivacyUnit.PARTY
        return Estimates.of(
            rows,
            noise_only=parties,
            tests={} if parties else tests,
            flags=tuple(flags),
            headline=(DIFFERENCE,) if len(groups) == 2 else (),
            reason=PARTIES if parties else "",
            method="ratios of noisy means; Welch",
        )

    def scores(self, columns: Columns, weight: Column) -> list[Score]:
        """The means, and of two groups their difference. Raises :class:`InputError` for a margin, which is of all records."""
        if self.margin:
            raise InputError(f"{self.text} compares groups, which have no margin. Leave margin and totals out.")
        column, by = columns.number(self.column), columns.category(self.by)
        block, design = ColumnBlock(column, by), self.design(columns)

        def part(group: int, factor: float) -> Part:
            present, values = np.eye(block.size)[BLOCK_SIZE * group : BLOCK_SIZE * group + 2]
            return factor, column.centre * present + column.width / 2 * values, present

        limits = (column.low, column.high)
        scores = [Score(group, limits, block, (part(place, 1.0),), weight, design) for place, group in enumerate(by.categories)]
        if len(by.categories) == 2:
            apart = (-column.width, column.width)
            scores.append(Score(DIFFERENCE, apart, block, (part(1, 1.0), part(0, -1.0)), weight, design))
        return scores

    def decode_weighted(self, released: Released, columns: Columns, weight: Column, records: float) -> Estimates:
        rows, flags, degrees = estimates_of(released, self.scores(columns, weight), records)
        compares = rows[-1].term == DIFFERENCE
        tests: dict[str, HypothesisTest] = {}
        if compares and rows[-1].known and math.isfinite(rows[-1].error):
            # As of a slope, beside an intercept.
            freedom = max(degrees[-1] - 1, 1.0)
            tests["t-test"] = t_test(rows[-1].value, rows[-1].error, freedom, DESIGN_T, rows[-1].noise)
        return Estimates.of(
            rows, flags=tuple(flags), tests=tests, headline=(DIFFERENCE,) if compares else (), method=METHOD_OF_WEIGHTS
        )

    def _of_sites(self, released: Released, block: ColumnBlock, groups: tuple[str, ...], sites: tuple[str, ...]) -> Estimates:
        column, across, means = block.column, AcrossSites.new(sites), SiteMeans(released, block, len(groups))
        for index, group in enumerate(groups):
            across.add(group, means.of(index), (column.low, column.high), noise=partial(means.noise, [index]))
        if len(groups) == 2:
            limits = (-column.width, column.width)
            across.add(DIFFERENCE, differences(means.of(0), means.of(1)), limits, tested=True, noise=partial(means.noise, [0, 1]))
        return across.estimates((DIFFERENCE,) if len(groups) == 2 else ())


def left_out(subject: str, terms: tuple[str, ...], released: Released, block: ColumnBlock, index: int) -> Flag:
    """What is said of a group that noise hides, by its place."""
    upper = most_of(*present_in(released, block, index), released.weight)
    return Flag(
        "group-left-out", f"{subject}: fewer than {upper:,.0f} values, too few for the noise. They are left out", terms, upper
    )


def _difference(first: Summary | None, second: Summary | None, column: Column) -> Estimate:
    """The second mean minus the first."""
    limits = (-column.width, column.width)
    if first is None or second is None:
        return Estimate.unknown(DIFFERENCE, limits)
    return SmoothTerm(DIFFERENCE, limits).estimate(*_welch(first, second))


def _welch(first: Summary, second: Summary) -> tuple[float, float, float, float]:
    """The difference of means, its variances of noise and of sampling, and the degrees of freedom of both together."""
    apart = np.array([-1.0, 0.0, 1.0, 0.0])
    noise, sampling = spread(apart, first.noise_with(second)), first.sampling_of_mean + second.sampling_of_mean
    degrees = satterthwaite(noise + sampling, first.uncertainty_of_sampling + second.uncertainty_of_sampling)
    return second.mean - first.mean, noise, sampling, degrees


def welch_t(first: Summary, second: Summary) -> HypothesisTest:
    """The test that both groups have the same mean, whatever their variances."""
    difference, noise, sampling, degrees = _welch(first, second)
    return t_test(difference, math.sqrt(noise + sampling), degrees, WELCH_T, math.sqrt(max(noise, 0.0)))


def moved_smd(pair: list[MovedMoments]) -> float:
    """How far the standardised difference of two groups moves: the difference over a root that is between both variances'."""
    ends = []
    for block in pair:
        if block.known is None:
            return math.inf
        high, moved = block.records[1], float(block.variances()[0, 0])
        variance = max(float(block.known[1][0, 0]), 0.0) * (high / (high - 1) if high > 1 else math.inf)
        ends.append((variance - moved, variance + moved))
    least, most = min(low for low, _ in ends), max(high for _, high in ends)
    if not least > 0:
        return math.inf
    apart = [float(block.known[0][0]) for block in pair if block.known is not None]
    reach = float(pair[0].means[0] + pair[1].means[0])
    values = [(apart[1] - apart[0] + sign * reach) / math.sqrt(size) for sign in (-1, 1) for size in (least, most)]
    # The released one is between these as well.
    return max(values) - min(values)


def welch_anova(groups: list[Summary]) -> HypothesisTest:
    """The test that all groups have the same mean, whatever their variances; these include the noise.

    What the noise of means has in common moves no difference: all variances are smaller by its part in them.
    """
    alone = np.array([group.noise_of_mean + group.sampling_of_mean for group in groups])
    shared = [one.shared[0, other.group, 0] for one in groups for other in groups if one is not other]
    common = math.fsum(shared) / (len(groups) - 1) / float(alone.sum()) if alone.sum() > 0 else 0.0
    variances = (alone * (1 - common)).tolist()
    # What is estimated is of the sampling alone: without the common part of the noise it is more of the rest.
    degrees = [group.degrees * (1 - common) ** 2 for group in groups]
    count = len(groups)
    if min(variances) <= 0:
        return HypothesisTest(math.nan, (count - 1.0, math.nan), math.nan, WELCH_ANOVA, "F")
    weights = 1 / np.array(variances)
    means = np.array([group.mean for group in groups])
    middle = float(weights @ means / weights.sum())
    loose = float(((1 - weights / weights.sum()) ** 2 / np.array(degrees)).sum())
    between = float(weights @ (means - middle) ** 2) / (count - 1)
    second = (count**2 - 1) / (3 * loose) if loose > 0 else math.inf
    return f_test(between / (1 + 2 * (count - 2) / (count**2 - 1) * loose), count - 1.0, second, WELCH_ANOVA)
