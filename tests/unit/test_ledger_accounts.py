"""Ledgers: whose account it is, how a file is made, and people who are recognised."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, poisson

from quietmean.ledger import Ledger, Rule
from quietmean.ledger.account import over_gaussian
from quietmean.ledger.database import SCHEMA
from quietmean.ledger.people import LEAST_COMMON, LEAST_PART, MOST_KEPT, PERSONS, ROWS, Sketch
from quietmean.privacy import Charge, mu_of_budget
from quietmean.statistics import Column, Columns
from quietmean.studies.data import records_of
from quietmean.studies.data.persons import identities_of
from quietmean.studies.party.accounts import KEY_NAME, People, people_key

# -- A ledger is made once, however many processes and crashes are at it.
NOON = datetime(2030, 1, 2, 12, 0, 0, tzinfo=UTC)


def test_many_at_once_make_it_once(tmp_path: Path) -> None:
    path, failures = tmp_path / "new.ledger", list[BaseException]()

    def use(number: int) -> None:
        try:
            with Ledger.open(path, create=True) as ledger:
                ledger.set_budget(f"account {number}", 1.0, 1e-6, when=NOON)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Ledger.open(path) as ledger:
        assert len(ledger.accounts()) == 8


def test_a_crash_on_the_way_leaves_nothing_or_all_of_it(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    class Mortal(sqlite3.Connection):
        lives = 0

        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if self.lives <= 0:
                raise Crash
            self.lives -= 1
            return super().execute(*arguments)

    def reopened(connection: sqlite3.Connection) -> Callable[[Path], sqlite3.Connection]:
        return lambda path: connection

    crashed, path = 0, tmp_path / "new.ledger"
    for lives in range(60):
        connection = sqlite3.connect(path, isolation_level=None, factory=Mortal)
        connection.lives = lives
        try:
            Ledger.open(path, create=True, connect=reopened(connection)).close()
            break
        except Crash:
            crashed += 1
            connection.close()
        with sqlite3.connect(path) as database:
            assert database.execute("PRAGMA user_version").fetchone()[0] in (0, SCHEMA)
    assert crashed >= 10
    with Ledger.open(path) as ledger:
        assert not ledger.accounts()


# -- Recognising people in a ledger: how often an overlap is missed or told where there is none, and what is in which file.
KEY = bytes(range(32))


def people(first: int, last: int) -> NDArray[np.uint64]:
    """So many persons by number, as hashes of identifiers are."""
    return np.random.default_rng(11).integers(1, 2**63, (last, 2)).astype(np.uint64)[first:]


def sketch(first: int, last: int, kind: str = PERSONS, key: bytes = KEY) -> Sketch:
    return Sketch.of(people(first, last), kind, key)


@pytest.mark.parametrize(
    ("known", "fresh", "same"),
    [
        ((0, 400), (0, 400), True),
        # A part in the whole, and the whole beside its part.
        ((0, 2000), (1900, 1990), True),
        ((1900, 1990), (0, 2000), True),
        # 1 % of the smaller one, and three.
        ((0, 1000), (990, 1990), True),
        ((0, 1000), (991, 1991), False),
        ((0, 100), (97, 197), True),
        ((0, 100), (98, 198), False),
        ((0, 400), (400, 800), False),
    ],
)
def test_from_one_percent_of_the_smaller_and_three_rows_on(known: tuple[int, int], fresh: tuple[int, int], same: bool) -> None:
    assert sketch(*known, ROWS).overlaps(sketch(*fresh, ROWS)) == same
    # Of persons one is enough: it is proven, and nothing is guessed.
    assert sketch(*known).overlaps(sketch(*fresh)) == bool(set(range(*known)) & set(range(*fresh)))


def test_nothing_is_known_across_kinds_and_keys() -> None:
    assert not sketch(0, 50).overlaps(sketch(0, 50, ROWS))
    assert not sketch(0, 50).overlaps(sketch(0, 50, key=KEY[::-1]))
    assert sketch(0, 50, ROWS).overlaps(sketch(0, 50, ROWS))


def test_an_account_is_about_all_that_were_charged_to_it() -> None:
    both = sketch(0, 300).joined(sketch(300, 600))
    assert both.overlaps(sketch(590, 900))
    assert not both.overlaps(sketch(600, 900))
    assert len(both.members) == both.count == 600


@pytest.mark.slow
def test_large_sets_of_rows_are_thinned_out_and_parts_are_still_found() -> None:
    large, part = sketch(0, 250_000, ROWS), sketch(100_000, 102_000, ROWS)
    assert MOST_KEPT / 2 < len(large.members) <= MOST_KEPT
    assert large.level == 2
    assert large.overlaps(part)
    assert part.overlaps(large)
    assert not large.overlaps(sketch(250_000, 252_000, ROWS))
    assert large.joined(part).count == pytest.approx(250_000, rel=0.02)


@pytest.mark.parametrize("size", [10**5, 10**6, 10**7])
def test_a_fifth_is_missed_and_strangers_are_met_less_often_than_once_in_a_million(size: int) -> None:
    """Exactly: which digests are kept is a draw for each person, and two persons have the same 64 bits by chance."""
    level = next(level for level in range(30) if size / 2**level <= MOST_KEPT)
    chance = 2.0**-level
    # A data set of which a fifth is in the larger one; of a set that is thinned out, parts above a five-hundredth.
    for smaller in (size // 500 if level else 20, size // 20, size):
        common = smaller // 5
        needed = max(LEAST_COMMON, int(np.ceil(LEAST_PART * smaller * chance * 2)))
        missed = binom.cdf(needed - 1, common, chance)
        # Of the smaller one more than twice as many as expected are kept: not once in a million either.
        assert missed + (binom.sf(2 * smaller * chance, smaller, chance) if level else 0) < 1e-6
        kept = size * chance
        # Kept digests lie below 2^(64 - level).
        assert poisson.sf(LEAST_COMMON - 1, kept * min(kept, smaller) / (2.0**64 * chance)) < 1e-6


def test_a_threshold_of_another_kind_is_found() -> None:
    """Of a mutant that compares without bringing both to one threshold, parts of large sets would be lost."""
    large, part = sketch(0, 250_000, ROWS), sketch(0, 1500, ROWS)
    both = len(np.intersect1d(large.members, part.members))
    assert both / len(part.members) < 0.4
    assert large.common(part)[1] == 1.0


def test_the_key_is_in_a_file_of_its_own_and_neither_it_nor_anybody_in_the_ledger(tmp_path: Path) -> None:
    key = people_key(tmp_path)
    assert people_key(tmp_path) == key
    assert len(key) == 32
    assert stat.S_IMODE((tmp_path / "people.key").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["people.key"]
    identifiers = [f"patient-{number}" for number in range(50)]
    persons = identities_of(identifiers)
    with Ledger.open(tmp_path / "ledger", create=True):
        pass
    mine = Sketch.of(persons, PERSONS, key)
    content = (tmp_path / "ledger").read_bytes() + mine.members.tobytes() + mine.key
    assert key not in content
    assert not any(one.encode() in content for one in identifiers)
    assert not any(one.tobytes() in content for one in persons)


def test_that_the_key_is_made_is_said_once_with_its_place(tmp_path: Path) -> None:
    data, told = tmp_path / "ages.csv", list[str]()
    data.write_text("age\n30\n40\n50\n60\n")
    for _ in range(2):
        records = records_of(data, Columns([Column(name="age", low=0, high=100)]), told.append)
        assert People(records, data, tmp_path, told.append).sketch is not None
    (said,) = told
    assert said.startswith(f"{tmp_path / KEY_NAME} is made")


@pytest.mark.parametrize("steps", [1, 2, 1024])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("rule", Rule)
def test_so_many_gaussian_studies_fit_where_one_of_laplace_noise_does(steps: int, epsilon: float, rule: Rule) -> None:
    """A bound, exact but for rounding; never said of Gaussian noise, nor where epsilons are added."""
    delta = 1e-6
    charge = Charge.of_laplace(steps, steps / epsilon, tv=1e-18)
    gaussian = Charge(mu_of_budget(charge.pure, delta))
    times = over_gaussian(charge, delta, rule)
    assert over_gaussian(gaussian, delta, rule) is None
    if rule == Rule.PURE:
        assert times is None
        return
    assert times is not None
    power = rule.curve.power
    whole, each = (Fraction(rule.curve.column(one)) ** power for one in (charge, gaussian))
    assert each * Fraction(times) >= whole > each * Fraction(times) * (1 - Fraction(1, 10**9))
