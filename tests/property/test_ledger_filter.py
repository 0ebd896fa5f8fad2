"""Filters of ledgers, and ledgers that several processes use."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.ledger import Account, Budget, Freeze, Ledger, LedgerEntry, Refund, Rule
from quietmean.ledger.filter import SpendingRequest, reserved, settled
from quietmean.privacy import Charge, mu_of_budget
from quietmean.privacy.composition import fits
from quietmean.privacy.conversion import delta_of_mu
from support.effort import examples

# -- The ledger is a privacy filter: whoever chooses the studies, whatever is refunded, the budget holds. Checked with 60
# digits.
NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
STAMP = "2030-01-02T12:00:00+00:00"
DIGITS = 60
Reserve = Callable[[Account, LedgerEntry | None, SpendingRequest, str, str], LedgerEntry]
Settle = Callable[[Account, LedgerEntry, Charge, str, str], tuple[LedgerEntry, Freeze | None]]


@dataclass
class Truth:
    """What studies may have cost by now, from the adversary's own notes: reserved ones in full, settled ones as they did."""

    epsilon: float
    delta: float
    rule: Rule = Rule.GAUSS
    costs: dict[str, Charge] = field(default_factory=dict)

    def total(self) -> mpmath.mpf:
        """delta of all studies together at the budget's epsilon."""
        with mpmath.workdps(DIGITS + 40):
            e = mpmath.mpf(self.epsilon)
            return self.of_rule(e) + self.sum_of("beta") + (1 + mpmath.exp(e)) * self.sum_of("tv")

    def sum_of(self, column: str, power: int = 1) -> mpmath.mpf:
        return sum((mpmath.mpf(getattr(cost, column)) ** power for cost in self.costs.values()), mpmath.mpf(0))

    def of_rule(self, e: mpmath.mpf) -> mpmath.mpf:
        if self.rule == Rule.PURE:
            return mpmath.mpf(int(self.sum_of("pure") > e))
        if self.rule == Rule.CONCENTRATED:
            return least_delta(self.sum_of("rho"), e)
        mu = mpmath.sqrt(self.sum_of("mu", 2))
        return normal(-e / mu + mu / 2) - mpmath.exp(e) * normal(-e / mu - mu / 2) if mu else mu

    def holds(self) -> bool:
        return bool(self.total() <= mpmath.mpf(self.delta))


def least_delta(rho: mpmath.mpf, e: mpmath.mpf) -> mpmath.mpf:
    """The bound of Canonne, Kamath and Steinke at the best order."""

    def log_delta(exponent: float) -> mpmath.mpf:
        above = mpmath.exp(exponent)
        return above * ((1 + above) * rho - e - mpmath.log1p(1 / above)) - mpmath.log1p(above)

    if not rho:
        return rho
    best = minimize_scalar(
        lambda exponent: float(log_delta(exponent)), bounds=(-12.0, 25.0), method="bounded", options={"xatol": 1e-9}
    )
    return mpmath.exp(log_delta(best.x))


def normal(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def empty(budget: Budget, refund: Refund = Refund.SETTLED) -> Account:
    return Account("wards", "wards", PrivacyUnit.RECORD, Neighbouring.REPLACEMENT, refund, (budget,), ())


@dataclass
class Adversary:
    """Asks an account in memory for studies, and says what they cost; ``excess``: how often more than was reserved."""

    account: Account
    rng: random.Random
    excess: float = 0.0
    reserve: Reserve = reserved
    settle: Settle = settled
    allowed: int = 0
    refused: int = 0
    violated: bool = False

    def __post_init__(self) -> None:
        self.truth = Truth(self.account.budget.epsilon, self.account.budget.delta, self.account.rule)

    def play(self, studies: int, check_every: int = 1) -> None:
        for number in range(studies):
            self.ask(f"s{number}")
            while self.rng.random() < 0.4:
                self.answer()
            if number % check_every == 0 or number == studies - 1:
                # A study that cost more than its bound may break the budget, but never without a word.
                self.violated |= not (self.truth.holds() or self.account.frozen)

    def ask(self, study: str) -> None:
        request = SpendingRequest(study, study, self.wish(), refund=self.rng.random() < 0.9)
        try:
            entry = self.reserve(self.account, None, request, STAMP, "")
        except InputError:
            self.refused += 1
            return
        self.allowed += 1
        if self.account.frozen:
            self.violated = True
        self.truth.costs[study] = request.charge
        self.account = replace(self.account, entries=(*self.account.entries, entry))

    def wish(self) -> Charge:
        """All that is left, a part of it, or a little too much; in each column on its own."""
        most, left = self.account.remaining, self.account.remaining_additive_delta
        share = [self.rng.choice([0.0, 1e-3, 0.1, 0.5, 1.0, 1.0 + 1e-12, 2.0, self.rng.random()]) for _ in range(3)]
        split = self.rng.random()
        # Upwards by no more than rounding: at the very edge the filter has to decide exactly.
        growth = 1 + float(mpmath.exp(self.truth.epsilon))
        return self.costs(share[0] * most, min(1.0, share[1] * split * left), min(1.0, share[2] * (1 - split) * left / growth))

    def costs(self, column: float, beta: float, tv: float) -> Charge:
        """The charge of a study that costs this much of what the account adds up."""
        if self.account.rule == Rule.GAUSS:
            return Charge(column, beta, tv)
        if self.account.rule == Rule.PURE:
            return Charge(math.inf, beta, tv, pure=column)
        # A study of any mu, for which the account does not ask.
        return Charge(1.0 + 2 * math.sqrt(column), beta, tv, rho=column)

    def answer(self) -> None:
        """Some study is over, or says once more what it cost: never more than before, but for an ``excess``."""
        if not self.account.entries:
            return
        entry = self.rng.choice([one for one in self.account.entries if not one.settled] or self.account.entries)
        if self.rng.random() < 0.1:
            entry = self.rng.choice(self.account.entries)
        most = entry.certified or entry.reserved
        times = 1.0 if self.rng.random() >= self.excess else 3.0
        part = [self.rng.choice([0.0, 0.3, 1.0, self.rng.random()]) * times for _ in range(3)]
        column = self.account.rule.curve.column(most) * part[0]
        cost = self.costs(column, min(1.0, most.beta * part[1]), min(1.0, most.tv * part[2]))
        before = entry.certified
        fresh, freeze = self.settle(self.account, entry, cost, STAMP, "")
        # The adversary knows the worst of what it said; what was reserved no longer counts once a study is over.
        self.truth.costs[entry.study] = cost if before is None else cost.larger(before)
        entries = tuple(fresh if one.study == entry.study else one for one in self.account.entries)
        freezes = self.account.freezes if freeze is None else (*self.account.freezes, freeze)
        self.account = replace(self.account, entries=entries, freezes=freezes)


BUDGETS = [(1.0, 1e-6), (0.1, 1e-12), (8.0, 1e-12), (3.0, 1e-3)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_a_thousand_adaptive_studies_keep_the_budget(epsilon: float, delta: float) -> None:
    seed = f"{epsilon} {delta}"
    adversary = Adversary(empty(Budget.of(epsilon, delta, STAMP)), random.Random(seed))
    adversary.play(1000, check_every=10)
    share = float(adversary.truth.total() / delta)
    print(f"seed {seed!r}: {adversary.allowed} studies allowed, {adversary.refused} refused, {share:.4f} of delta")
    assert not adversary.violated
    assert adversary.account.frozen is None
    # It is a test of a budget that is really used.
    assert adversary.allowed > 100
    assert adversary.refused > 20


@given(
    st.integers(0, 10**9),
    st.floats(0.05, 10.0),
    st.floats(-12.0, -2.0),
    st.sampled_from(Refund),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from(Rule),
)
@settings(max_examples=examples(60))
def test_any_adversary_keeps_any_budget(
    seed: int, epsilon: float, exponent: float, refund: Refund, excess: float, rule: Rule
) -> None:
    account = empty(Budget.of(epsilon, 10.0**exponent, STAMP, rule), refund)
    adversary = Adversary(account, random.Random(seed), excess)
    adversary.play(30)
    assert not adversary.violated


@pytest.mark.parametrize("rule", Rule)
def test_the_ledger_on_disk_decides_as_the_filter_does(tmp_path: Path, rule: Rule) -> None:
    """The same studies through a file: what it holds after each is what the filter says in memory."""
    rng = random.Random(7)
    with Ledger.open(tmp_path / "ledger", create=True) as ledger:
        ledger.set_budget("wards", 2.0, 1e-9, when=NOON, rule=rule)
        twin = Adversary(ledger.account("wards"), rng)
        for number in range(60):
            before = len(twin.account.entries)
            twin.ask(f"s{number}")
            for entry in twin.account.entries[before:]:
                ledger.reserve("wards", SpendingRequest(entry.study, entry.name, entry.reserved, refund=entry.refund), when=NOON)
            known = {entry.study: entry for entry in twin.account.entries}
            twin.answer()
            for entry in twin.account.entries:
                if entry != known[entry.study] and entry.certified is not None:
                    ledger.settle(entry.study, entry.certified, when=NOON)
            assert ledger.account("wards").entries == twin.account.entries
    assert twin.account.rule == rule
    assert twin.truth.holds()
    assert twin.allowed > 20


# --- an adversary that chooses the noise from what it saw ---------------------------------------------------------------------

LOSS, REACH = 1 / 64, 1024


def of_laplace(epsilon: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What is lost to Laplace noise, in steps of LOSS, and how likely that is."""
    steps = round(2 * epsilon / LOSS)
    a, number = math.exp(-epsilon / steps), np.arange(steps + 1)
    chances = (1 - a) / (1 + a) * a**number
    chances[[0, -1]] = 1 / (1 + a), a**steps / (1 + a)
    losses: NDArray[np.int64] = (steps - 2 * number) // 2
    return losses, chances.astype(np.float64)


def of_gaussian(mu: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    below = norm.cdf(((np.arange(-REACH, REACH) + 0.5) * LOSS - mu * mu / 2) / mu)
    return np.arange(-REACH, REACH + 1), np.diff(np.concatenate([[0.0], below, [1.0]]))


def worst_delta(epsilon: float, left: float, studies: list[tuple[float, float | None]], rounds: int) -> NDArray[np.float64]:
    """The delta that the best choice of the next study reaches from each loss so far.

    A study is its mu, and its epsilon where its noise is Laplace's.
    """
    losses = np.arange(-REACH, REACH + 1)
    best: NDArray[np.float64] = np.maximum(0.0, -np.expm1(epsilon - losses * LOSS))
    if rounds:
        for mu, pure in studies:
            if mu**2 <= left * (1 + 1e-12):
                after = worst_delta(epsilon, left - mu**2, studies, rounds - 1)
                steps, chances = of_gaussian(mu) if pure is None else of_laplace(pure)
                reached = np.clip(losses[:, None] + steps, -REACH, REACH) + REACH
                best = np.maximum(best, after[reached] @ chances)
    return best


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 2.9])
def test_no_choice_between_laplace_and_gaussian_noise_breaks_a_budget(epsilon: float) -> None:
    """Three studies, each of the noise that is worse after what was seen; and a smaller mu of Laplace noise is found out."""
    laplace, gauss = Charge.of_laplace(2**20, 2.0**20).mu, 0.8
    for budget in (3 * laplace**2, 2 * laplace**2 + gauss**2, laplace**2 + 2 * gauss**2):
        worst = worst_delta(epsilon, budget, [(laplace, 1.0), (gauss, None)], 3)[REACH]
        assert worst <= delta_of_mu(math.sqrt(budget), epsilon)
    exact = worst_delta(epsilon, gauss**2, [(gauss, None)], 1)[REACH]
    assert exact == pytest.approx(delta_of_mu(gauss, epsilon), rel=1e-2)


def test_a_smaller_mu_of_laplace_noise_is_found_out() -> None:
    worst = worst_delta(2.0, 3 * 0.8**2, [(0.8, 1.0)], 3)[REACH]
    assert worst > 1.3 * delta_of_mu(math.sqrt(3) * 0.8, 2.0)


# --- wrong filters -----------------------------------------------------------------------------------------------------------


def refunds_upwards(
    account: Account, entry: LedgerEntry, charge: Charge, stamp: str, note: str
) -> tuple[LedgerEntry, Freeze | None]:
    """Takes whatever a study says that it cost, as the first ledgers did."""
    fresh, _ = settled(account, entry, charge, stamp, note)
    return fresh, None


def forgets(account: Account, entry: LedgerEntry, charge: Charge, stamp: str, note: str) -> tuple[LedgerEntry, Freeze | None]:
    """The last answer holds, not the worst."""
    return replace(entry, certified=charge, charged=charge, status="spent"), None


def gives_back_what_is_not_settled(
    account: Account, known: LedgerEntry | None, request: SpendingRequest, stamp: str, command: str
) -> LedgerEntry:
    """Counts a study only once it is settled."""
    return reserved(
        replace(account, entries=tuple(one for one in account.entries if one.settled)), known, request, stamp, command
    )


def counts_only_mu(
    account: Account, known: LedgerEntry | None, request: SpendingRequest, stamp: str, command: str
) -> LedgerEntry:
    """Takes beta and tv as they come, as the first ledgers did."""
    entry = reserved(account, known, replace(request, charge=Charge(request.charge.mu)), stamp, command)
    return replace(entry, reserved=request.charge, charged=Charge(request.charge.mu))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("reserve", "settle", "excess"),
    [
        (reserved, refunds_upwards, 0.2),
        (reserved, forgets, 0.0),
        (gives_back_what_is_not_settled, settled, 0.0),
        (counts_only_mu, settled, 0.0),
    ],
)
def test_a_wrong_filter_is_found_out(reserve: Reserve, settle: Settle, excess: float) -> None:
    found = 0
    for seed in range(10):
        account = empty(Budget.of(1.0, 1e-6, STAMP))
        wrong = Adversary(account, random.Random(seed), excess, reserve, settle)
        wrong.play(100, check_every=2)
        found += wrong.violated
        right = Adversary(account, random.Random(seed), excess)
        right.play(100, check_every=10)
        assert not right.violated
    print(f"seeds 0 to 9: {found} of 10")
    assert found >= 3


def test_a_budget_that_gives_mu_all_of_delta_is_found_out() -> None:
    budget = Budget.of(1.0, 1e-6, STAMP)
    wrong = replace(budget, limit=mu_of_budget(1.0, 1e-6))
    truth = Truth(1.0, 1e-6)
    for which, kept in ((budget, True), (wrong, False)):
        charge = Charge(which.limit, which.additive_delta)
        assert which.allows([charge])
        truth.costs["s"] = charge
        assert truth.holds() is kept


# -- Many processes on one ledger, killed at random: nothing that was answered is lost, and together they never overspend.
# Workers are forked from one process, as a start of Python takes longer than all they do. Each writes a study's name once the
# ledger has answered; the pipe outlives it. The first argument is the ledger, then rounds, workers, mu of a study and whether the
# workers of a round reserve the same studies.
NURSERY = """
import os, random, signal, sys, time
from datetime import UTC, datetime
from pathlib import Path
from quietmean.core.errors import InputError
from quietmean.ledger import Ledger, SpendingRequest
from quietmean.privacy import Charge, mu_of_budget

# What is imported at the first charge is imported once, before the forks.
mu_of_budget(1.0, 1e-6)
path, rounds, workers, mu, shared = Path(sys.argv[1]), *map(int, sys.argv[2:4]), float(sys.argv[4]), sys.argv[5] == "shared"
when = datetime(2030, 1, 2, 12, tzinfo=UTC)
random.seed(rounds)

def work(name):
    with Ledger.open(path, create=True) as ledger:
        for number in range(10**6):
            study = f"{name}.{number}"
            try:
                ledger.reserve("wards", SpendingRequest(study, study, Charge(mu)), when=when)
            except InputError as error:
                os.write(1, f"refused {error}\\n".encode())
                return
            os.write(1, f"reserved {study}\\n".encode())
            if number % 3 == 0:
                ledger.settle(study, Charge(mu / 2), when=when)
                os.write(1, f"settled {study}\\n".encode())

for round_ in range(rounds):
    children = []
    for worker in range(workers):
        child = os.fork()
        if not child:
            work(f"r{round_}" if shared else f"r{round_}w{worker}")
            os._exit(0)
        children.append(child)
    time.sleep(random.uniform(0.0, 0.08))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def nursery(path: Path, rounds: int, workers: int, mu: float, shared: bool = False) -> Iterator[tuple[str, str]]:
    """(what, which) for each answer that a worker got."""
    arguments = [str(path), str(rounds), str(workers), str(mu), "shared" if shared else "apart"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", NURSERY, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Error" not in run.stderr, run.stderr
    for line in run.stdout.splitlines():
        what, which = line.split(" ", 1)
        yield what, which


@pytest.mark.sampled(1)
@pytest.mark.parametrize("shared", [False, True])
def test_killed_while_reserving(tmp_path: Path, shared: bool) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, create=True) as ledger:
        ledger.set_budget("wards", 20.0, 1e-6, when=NOON)
    answers = list(nursery(path, rounds=40, workers=3, mu=1e-4, shared=shared))
    reserved = {which for what, which in answers if what == "reserved"}
    settled = {which for what, which in answers if what == "settled"}
    assert len(reserved) > 20
    assert not [which for what, which in answers if what == "refused"]
    with Ledger.open(path) as ledger:
        entries = {entry.study: entry for entry in ledger.trace("wards")}
        assert reserved <= set(entries)
        assert all(entries[study].mu == 5e-5 for study in settled)
        # At most one study a worker was charged whose answer did not get out, whichever way it was killed.
        assert len(set(entries) - reserved) <= 40 * 3
        for study in reserved:
            ledger.reserve("wards", SpendingRequest(study, "again", Charge(1e-4)), when=NOON)
        assert {entry.study: entry for entry in ledger.trace("wards")} == entries


def spend_all(ledger: Ledger, mu: float) -> None:
    for number in range(6):
        ledger.reserve("wards", SpendingRequest(f"last.{number}", "last", Charge(mu)), when=NOON)


def test_racing_for_the_last_of_a_budget(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    budget = mu_of_budget(1.0, 0.99e-6)
    mu = budget / 5.5
    with Ledger.open(path, create=True) as ledger:
        ledger.set_budget("wards", 1.0, 1e-6, when=NOON)
    # Each worker is killed after a while: on a busy machine, before any of them is refused.
    refusals = [which for what, which in nursery(path, rounds=12, workers=6, mu=mu) if what == "refused"]
    assert all("left of 1" in refusal for refusal in refusals), set(refusals)
    with Ledger.open(path) as ledger:
        with pytest.raises(InputError, match="left of 1"):
            spend_all(ledger, mu)
        account = ledger.account("wards")
    assert not account.overspent
    assert not fits(budget, [*account.mus, mu])


def test_made_by_many_at_once(tmp_path: Path) -> None:
    """Nobody has made the file: all try, each is told that the account is missing, none breaks it."""
    path = tmp_path / "ledger"
    refusals = [which for what, which in nursery(path, rounds=15, workers=6, mu=0.1) if what == "refused"]
    assert refusals
    assert all("'wards' is not in ledger" in refusal for refusal in refusals), set(refusals)
    with Ledger.open(path) as ledger:
        assert ledger.accounts() == ()
