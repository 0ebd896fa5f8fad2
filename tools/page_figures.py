"""What every page that a tool makes was made from: figures of plans, in a comment that ends the page.

A test computes them anew in seconds: a page of an earlier accounting, or of other statistics, is red. What the page says
itself may take hours to measure.

    python tools/page_figures.py PAGE.md ...

writes it anew at the end of pages whose figures were typed in, from what ``make bench`` prints.

    python tools/page_figures.py --older PAGE.md ...

does so for pages that are yet to be measured anew: the page says which of its lines are older than the code, with those of which
it said so before.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from equal_promises import error
from numpy.typing import NDArray
from page_parts import DOCS

from quietmean.core.workers import one_thread
from quietmean.planning.accuracy import draw_scenario
from quietmean.planning.calibrate import calibrate
from quietmean.planning.choices import CalibrationMethod
from quietmean.planning.levels import choose_levels
from quietmean.privacy import mu_of_budget
from quietmean.protocols import Target, configure, registry
from quietmean.protocols.cordp_dme.design import least_error
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.design import committee_for
from quietmean.randomness import Seed
from quietmean.statistics import Columns

BEGIN, END = "<!-- made from: ", " -->\n"
OLDER = "> Measured before the code gave other figures, and not yet again: "
_PLACES = 6
# Of a population, for the statistics asked of it.
_RECORDS = 1000
# A platform's linear algebra may differ in the last of them.
CLOSE = 1e-4


def ending(page: str, older: Sequence[str] = ()) -> str:
    """The comment that the page ends with: the figures that it is made from, now; before it which lines are ``older``."""
    said = f"\n{OLDER}{'; '.join(f'`{what}`' for what in older)}.\n" if older else ""
    return f"{said}\n{BEGIN}{json.dumps(figures(page))}{END}"


def figures(page: str) -> dict[str, float]:
    """By what they are of; every figure with six places."""
    with one_thread():
        found = PAGES[page]()
        return {what: float(f"{value:.{_PLACES}g}") for what, value in found}


def made_from(text: str) -> dict[str, float]:
    """What a page says that it is made from. Raises :class:`ValueError` where it does not say."""
    (found,) = re.findall(f"^{BEGIN}(.*){END}", text, re.MULTILINE)
    stated: dict[str, float] = json.loads(found)
    return stated


def changed(page: str) -> list[str]:
    """Which figures are not those that the page is made from."""
    stated, now = made_from((DOCS / page).read_text(encoding="utf-8")), figures(page)
    return [
        what
        for what in sorted(stated | now)
        if not math.isclose(stated.get(what, math.nan), now.get(what, math.nan), rel_tol=CLOSE)
    ]


def older_lines(text: str) -> list[str]:
    """Which lines a page says are older than the code."""
    said = re.search(f"^{OLDER}(.*)\\.$", text, re.MULTILINE)
    return re.findall("`([^`]*)`", said[1]) if said else []


def without(text: str) -> str:
    """A page without its ending."""
    return re.sub(f"(\n{OLDER}.*\n)?\n?{BEGIN}.*{END}", "", text)


# -- pages -----------------------------------------------------------------------------------------------------------------------

Found = Iterator[tuple[str, float]]


def packed_bars() -> Found:
    import packed_bars as tool

    from support.packed_bars import BARS

    for parties, colluding, dropouts, _ in BARS:
        for dimension in (1, tool.COORDINATES):
            plan = calibrate(tool.target(parties, colluding, dropouts, dimension), PackedSharing())
            yield f"{parties}, {colluding}, {dropouts:g}, d = {dimension}", error(plan)


def committee_bars() -> Found:
    import committee_bars as tool

    for asked in tool.ERRORS:
        yield asked.name, error(asked.plan)
        yield f"{asked.name}: epsilon", asked.plan.epsilon_a_priori


def scale() -> Found:
    import scale as tool

    for parties in tool.MEMBERS:
        plan = calibrate(tool.target(parties, tool.DIMENSION), PackedSharing())
        yield f"error of {parties}", error(plan)
    for parties in tool.MANY:
        found = committee_for(tool.target(parties, tool.DIMENSION), 0.0)
        yield f"committee of {parties}", math.nan if found is None else found.members
        yield f"beta of {parties}", math.nan if found is None else found.beta


def calibrations() -> Found:
    """Noise levels of a few small executions, which are accounted for as many large ones are."""
    target = Target(40, 0.2, 1e-5, colluding=4, dropouts=0.1)
    template = template_of(IncA(rounds=10, schedule="uniform"), target)
    scenarios = [draw_scenario(target, template, Seed.public("page", str(number)), 1) for number in range(3)]
    for method in CalibrationMethod:
        star, delta = choose_levels(target, scenarios, method)
        yield f"{method} sigma_star^2", star**2
        yield f"{method} sigma_delta^2", delta**2


def gallery() -> Found:
    """What the papers' figures are computed with: levels of IncA's accounts, designs of CorDP-DME, plans of the others."""
    yield from calibrations()
    for responding, colluding in ((10, 0), (8, 0), (8, 2)):
        yield f"cordp-dme {responding} of 10, {colluding}", least_error(10, responding, colluding, mu_of_budget(2.0, 1e-5))
    yield from _plans(("consensus", "gopa", "muffliato", "priv-unit-g"), Target(10, 1.0, 1e-6, 10, 2.0, 1))


def _plans(names: Iterable[str], target: Target, options: Mapping[str, Any] = MappingProxyType({})) -> Found:
    for name in names:
        plan = calibrate(target, configure(name, options))
        yield f"{name} error", error(plan)
        yield f"{name} epsilon", plan.epsilon_a_priori


def performance() -> Found:
    """Plans that the benchmarks run, and the error of secure aggregation beside Flower."""
    target = Target(100, 2.0, 1e-5, 100_000, 2.0, 1, 0.1)
    yield from _plans(("secagg-plus", "cordp-dme"), target)
    yield from _plans(("packed-sharing",), Target(10, 1.0, 1e-6, 1_000_000, 2.0, 1))
    yield from calibrations()


def learning_tables() -> Found:
    import learning_tables as tool

    from quietmean.learning import LogisticRegression
    from quietmean.learning.sites import OnPaper

    asked = [(one.title, one.parties, {**tool.DIGITS, **one.asked, "epsilon": one.epsilon}) for one in tool.SETTINGS]
    fair = [
        (f"fair, {way}", tool.FAIR["parties"], {**tool.FAIR, **stated, "accept_wide": True})
        for way, stated in tool.FAIR_WAYS.items()
    ]
    for what, parties, options in asked + fair:
        rows = tool.fair()[0] if what.startswith("fair") else tool.digits()[0]
        study = LogisticRegression(**options)._agreement(rows, OnPaper(count=parties))
        plan = study.terms(parties).plan if hasattr(study, "terms") else study.plan(parties)
        yield what, error(plan)


def statistics_bars() -> Found:
    from coverage_populations import all_of_them

    for population in all_of_them():
        table = population.records
        records = table(np.random.default_rng(0), _RECORDS) if callable(table) else table[:_RECORDS]
        yield f"{population.what}: {population.text}", _widths(population.columns, population.text, records, 4.0)
    yield from _plans(("packed-sharing",), Target(20, 1.0, 1e-6, 10, 2.0, 2, 0.1))


def real_data_bars() -> Found:
    import real_data_bars as tool
    import synthetic_bars

    for data in (make() for make in tool.SETS):
        for text in data.questions:
            yield f"{data.name}: {text}", _widths(data.columns, text, data.records, tool.EPSILON)
    yield from synthetic_bars.figures()


def look_bars() -> Found:
    import look_bars as tool

    yield from tool.figures()


def _widths(columns: Columns, text: str, records: NDArray[np.float64], epsilon: float) -> float:
    """Widths of both intervals of all terms that are known: what a curator's noise makes of the answer for these records."""
    from held_intervals import decoded, workload_of

    workload = workload_of(columns, text)
    noise = workload.sensitivity / mu_of_budget(epsilon, 1e-6) / len(records)
    found = decoded(workload, workload.of_records(records).mean(axis=0), noise, len(records))
    intervals = [found.of_noise, *([] if found.of_population is None else [found.of_population])]
    widths = np.concatenate([one[:, 1] - one[:, 0] for one in intervals])
    return float(widths[np.isfinite(widths)].sum())


def model_bars() -> Found:
    import model_bar_cases as cases
    import model_bars as tool

    for question in (*tool.QUESTIONS, tool.LEAST_SQUARES):
        rng, model = np.random.default_rng(0), question.model(4.0)
        records, noise = [question.draw(rng, _RECORDS)], tool.noise_of(model, _RECORDS, 4.0)
        errors = np.asarray(tool.fitted(model, records, noise, rng, model.rounds).coefficients.population)
        yield question.what, float(np.sum(errors[np.isfinite(errors)]))
    for case in (*cases.LEVEL_QUESTIONS, *cases.CASES):
        what = f"{case.text}: {case.data}" if case.data else case.text
        yield what, _widths(case.columns, case.text, case.draw(np.random.default_rng(0), _RECORDS), 4.0)


def joined_errors() -> Found:
    import joined_errors as tool
    from joined_studies import data_sets

    asked = next(iter(data_sets()))
    for name in sorted(registry()):
        # Bounds of histories of inca take seconds, and other pages have them.
        if tool.joinable(name) and name != "inca":
            yield name, error(asked.study(name, 0.0).plan(5, no_privacy=not registry()[name].TRAITS.private))


# Each with what it is made from. Pages about the slowest plans have a stamp of their own, :mod:`page_stamp`.
PAGES: Mapping[str, Callable[[], Found]] = {
    "measurements/packed-bars.md": packed_bars,
    "measurements/committee-bars.md": committee_bars,
    "measurements/scale.md": scale,
    "measurements/calibrations.md": calibrations,
    "measurements/gallery.md": gallery,
    "measurements/performance.md": performance,
    "measurements/learning-tables.md": learning_tables,
    "measurements/statistics-bars.md": statistics_bars,
    "measurements/real-data-bars.md": real_data_bars,
    "measurements/model-bars.md": model_bars,
    "measurements/look-bars.md": look_bars,
    "measurements/joined-errors.md": joined_errors,
}


def main() -> int:
    pages = [page for page in sys.argv[1:] if page != "--older"]
    for page in pages:
        text = (path := DOCS / page).read_text(encoding="utf-8")
        older = sorted({*older_lines(text), *changed(page)}) if "--older" in sys.argv else []
        path.write_text(without(text) + ending(page, older), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
