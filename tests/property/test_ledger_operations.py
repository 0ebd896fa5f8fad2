"""The ledger under any order of operations, restarts and crashes: against a plain model, to the last bit.

The model keeps mu alone; the other columns are in test_ledger_filter.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quietmean.core.errors import InputError
from quietmean.ledger import RESERVED, SPENT, Budget, Ledger, SpendingRequest
from quietmean.privacy import Charge, mu_of_budget
from support.effort import examples

NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
DELTA = 1e-6
# What the filter leaves for mu.
MOST = Budget.of(1.0, DELTA, "").other_delta
STUDY = st.sampled_from([f"s{number}" for number in range(8)])
ACCOUNT = st.sampled_from(["wards", "labs"])
MU = st.floats(0.0, 0.3)
EPSILON = st.sampled_from([0.1, 0.5, 1.0, 2.0])


def squares(mus: list[float]) -> Fraction:
    return sum((Fraction(mu) ** 2 for mu in mus), Fraction(0))


@dataclass
class Study:
    """One on the model's books, each amount in mu."""

    account: str
    reserved: float
    mu: float
    status: str = RESERVED


@dataclass
class Model:
    """What a ledger must hold: budgets in mu by account, studies, and which accounts are frozen."""

    budgets: dict[str, float] = field(default_factory=dict)
    studies: dict[str, Study] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)

    def charged(self, account: str, but: str = "") -> list[float]:
        return [one.mu for study, one in self.studies.items() if one.account == account and study != but]

    def fits(self, account: str, more: list[float], but: str = "") -> bool:
        return squares([*self.charged(account, but), *more]) <= Fraction(self.budgets[account]) ** 2

    def budget(self, account: str, epsilon: float) -> bool:
        mu = mu_of_budget(epsilon, MOST)
        before = self.budgets.get(account, 0.0)
        if mu < before and squares(self.charged(account)) > Fraction(mu) ** 2:
            return False
        self.budgets[account] = mu
        return True

    def reserve(self, account: str, study: str, mu: float) -> bool:
        if account not in self.budgets:
            return False
        known = self.studies.get(study)
        if known is not None and known.account != account:
            return False
        if known is not None and mu <= known.reserved:
            return True
        if (known is not None and known.status == SPENT) or account in self.frozen or not self.fits(account, [mu], but=study):
            return False
        self.studies[study] = Study(account, mu, mu)
        return True

    def settle(self, study: str, mu: float) -> bool:
        known = self.studies.get(study)
        if known is None:
            return False
        if known.status == SPENT and mu <= known.mu:
            return True
        fitted = self.fits(known.account, [])
        self.studies[study] = replace(known, mu=mu, status=SPENT)
        if mu > known.reserved or (fitted and not self.fits(known.account, [])):
            self.frozen.add(known.account)
        return True

    def lift(self, account: str) -> bool:
        if account not in self.frozen:
            return False
        self.frozen.remove(account)
        return True

    def apply(self, operation: tuple[Any, ...]) -> bool:
        name, *arguments = operation
        allowed: bool = getattr(self, name)(*arguments)
        return allowed

    def copy(self) -> Model:
        return Model(dict(self.budgets), dict(self.studies), set(self.frozen))


def apply(ledger: Ledger, operation: tuple[Any, ...]) -> bool:
    """Whether the ledger allowed it."""
    try:
        match operation:
            case ("budget", account, epsilon):
                ledger.set_budget(account, epsilon, DELTA, when=NOON)
            case ("reserve", account, study, mu):
                ledger.reserve(account, SpendingRequest(study, study, Charge(mu)), when=NOON)
            case ("settle", study, mu):
                ledger.settle(study, Charge(mu), when=NOON)
            case ("lift", account):
                ledger.lift(account, "looked at", when=NOON)
    except InputError:
        return False
    return True


def held(ledger: Ledger) -> Model:
    accounts = ledger.accounts()
    studies = {
        entry.study: Study(account.name, entry.reserved_mu, entry.mu, entry.status)
        for account in accounts
        for entry in account.entries
    }
    frozen = {account.name for account in accounts if account.frozen is not None}
    return Model({account.name: account.budget.limit for account in accounts}, studies, frozen)


class LedgerMachine(RuleBasedStateMachine):
    """Two open connections and a model, in any order of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger"
        self.model = Model()
        self.ledgers = [Ledger.open(self.path, create=True), Ledger.open(self.path)]

    def do(self, which: int, *operation: Any) -> bool:
        allowed = apply(self.ledgers[which], operation)
        assert allowed == self.model.apply(operation), operation
        return allowed

    @rule(which=st.integers(0, 1), account=ACCOUNT, epsilon=EPSILON)
    def budget(self, which: int, account: str, epsilon: float) -> None:
        self.do(which, "budget", account, epsilon)

    @rule(which=st.integers(0, 1), account=ACCOUNT, study=STUDY, mu=MU)
    def reserve(self, which: int, account: str, study: str, mu: float) -> None:
        known = study in self.model.studies
        if self.do(which, "reserve", account, study, mu) and not known:
            assert self.model.fits(account, [])

    @rule(which=st.integers(0, 1), study=STUDY, mu=MU)
    def settle(self, which: int, study: str, mu: float) -> None:
        self.do(which, "settle", study, mu)

    @precondition(lambda self: "wards" in self.model.budgets)
    @rule(which=st.integers(0, 1), study=STUDY)
    def spend_all_that_is_left(self, which: int, study: str) -> None:
        mu, _ = self.ledgers[which].remaining("wards")
        fresh = study not in self.model.studies
        refused = not fresh or "wards" in self.model.frozen or not self.model.fits("wards", [])
        assert self.do(which, "reserve", "wards", study, mu) or refused

    @precondition(lambda self: self.model.studies)
    @rule(which=st.integers(0, 1), data=st.data(), part=st.floats(0.0, 1.0))
    def settle_downwards(self, which: int, data: st.DataObject, part: float) -> None:
        study = data.draw(st.sampled_from(sorted(self.model.studies)))
        fitted = self.model.fits(self.model.studies[study].account, [])
        frozen = set(self.model.frozen)
        first = self.model.studies[study].status == RESERVED
        self.do(which, "settle", study, part * self.model.studies[study].reserved)
        # The first answer can only make room; no answer within what was reserved freezes what fits.
        if first or self.model.fits(self.model.studies[study].account, []) or not fitted:
            assert self.model.frozen == frozen

    @rule(which=st.integers(0, 1), account=ACCOUNT)
    def lift(self, which: int, account: str) -> None:
        self.do(which, "lift", account)

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.ledgers[which].close()
        self.ledgers[which] = Ledger.open(self.path)

    @invariant()
    def both_hold_what_the_model_holds(self) -> None:
        for ledger in self.ledgers:
            assert held(ledger) == self.model
            for account in ledger.accounts():
                assert account.overspent == (not self.model.fits(account.name, []))

    def teardown(self) -> None:
        for ledger in self.ledgers:
            ledger.close()
        self.folder.cleanup()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=examples(40), stateful_step_count=25)


# --- crashes -----------------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process is gone."""


class Mortal(sqlite3.Connection):
    """Dies before its ``lives``-th statement, and stays dead: nothing is rolled back by hand."""

    lives = 10**9

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if self.lives <= 0:
            raise Crash
        self.lives -= 1
        return super().execute(*arguments)


@contextmanager
def mortal(path: Path, lives: int) -> Iterator[Ledger]:
    """A ledger that dies after so many statements, those of opening it included."""
    opened: list[Mortal] = []

    def connect(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, factory=Mortal)
        connection.lives = lives
        opened.append(connection)
        return connection

    try:
        yield Ledger.open(path, create=True, connect=connect)
    finally:
        for connection in opened:
            connection.close()


OPERATION = st.one_of(
    st.tuples(st.just("budget"), ACCOUNT, EPSILON),
    st.tuples(st.just("reserve"), ACCOUNT, STUDY, MU),
    st.tuples(st.just("reserve"), ACCOUNT, STUDY, MU),
    st.tuples(st.just("settle"), STUDY, MU),
    st.tuples(st.just("lift"), ACCOUNT),
)


@given(st.lists(st.tuples(OPERATION, st.integers(0, 60)), min_size=1, max_size=15))
def test_a_crash_at_any_statement_leaves_all_or_nothing(operations: list[tuple[tuple[Any, ...], int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        model = Model()
        for operation, lives in [(("budget", "wards", 1.0), 10**9), *operations]:
            crash_then_retry(path, model, operation, lives)


def crash_then_retry(path: Path, model: Model, operation: tuple[Any, ...], lives: int) -> None:
    before, after = model.copy(), model.copy()
    allowed = after.apply(operation)
    answered = False
    try:
        with mortal(path, lives) as ledger:
            assert apply(ledger, operation) == allowed
            answered = True
    except Crash:
        pass
    with Ledger.open(path, create=True) as ledger:
        # An answer means that it is on disk: only then does the first message leave.
        now = held(ledger)
        assert now in ([after] if answered else [before, after])
        assert apply(ledger, operation) == now.apply(operation)
        assert held(ledger) == now == after
    model.budgets, model.studies, model.frozen = after.budgets, after.studies, after.frozen


def test_a_crash_before_each_statement_in_turn() -> None:
    operations: list[tuple[Any, ...]] = [
        ("budget", "wards", 1.0),
        ("reserve", "wards", "s1", 0.1),
        ("reserve", "wards", "s1", 0.2),
        ("reserve", "wards", "s2", 9.0),
        ("settle", "s1", 0.25),
        ("reserve", "wards", "s3", 0.01),
        ("lift", "wards"),
        ("budget", "wards", 2.0),
    ]
    for lives in range(75):
        with tempfile.TemporaryDirectory() as folder:
            model = Model()
            for operation in operations:
                crash_then_retry(Path(folder) / "ledger", model, operation, lives)
