"""The budget ledger and its command: what is charged stays charged, what does not fit is refused in one sentence."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import quietmean as qm
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.main import main
from quietmean.cli.screens import MORE
from quietmean.core.domain import Neighbouring, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.site_options import PaymentOptions
from quietmean.ledger import RESERVED, SPENT, Budget, Inputs, Ledger, Refund, Rule, SpendingRequest
from quietmean.ledger.filter import asked
from quietmean.privacy import Charge, compose_mu, mu_of_budget
from quietmean.privacy.charge import epsilon_of_rho
from quietmean.privacy.conversion import epsilon_of_mu
from quietmean.studies.party import Policy
from quietmean.studies.party.payment import payer_for
from support.command_lines import fails
from support.refusals import raised, refused, refused_rows

NOON = datetime(2030, 1, 2, 12, 0, 0, tzinfo=UTC)
# mu is read at 99 % of delta: the rest is for beta and tv.
MOST = Budget.of(1.0, 1e-6, "").other_delta
HALF = mu_of_budget(0.5, MOST)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ada.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, create=True) as book:
        book.set_budget("wards", 1.0, 1e-6, when=NOON)
        yield book


def charge(ledger: Ledger, study: str, mu: float = HALF, account: str = "wards") -> None:
    ledger.reserve(account, SpendingRequest(study, f"study {study}", Charge(mu)), when=NOON)


# --- what is kept ------------------------------------------------------------------------------------------------------------


def test_a_study_is_reserved_then_spent_and_all_of_it_is_there_after_a_restart(ledger: Ledger, path: Path) -> None:
    east = datetime(2030, 1, 2, 15, 0, tzinfo=timezone(timedelta(hours=2)))
    reserved = ledger.reserve("wards", SpendingRequest("s1", "pressure", Charge(HALF)), when=east)
    assert (reserved.status, reserved.mu, reserved.reserved_at) == (RESERVED, HALF, "2030-01-02T13:00:00+00:00")
    spent = ledger.settle("s1", Charge(HALF / 2), when=NOON, note="against an outsider")
    assert (spent.status, spent.mu, spent.reserved_mu, spent.note) == (SPENT, HALF / 2, HALF, "against an outsider")
    ledger.close()
    with Ledger.open(path) as again:
        assert again.trace("wards") == (spent,)
        account = again.account("wards")
    assert account.charged_mu == HALF / 2
    assert account.remaining == pytest.approx(math.sqrt(mu_of_budget(1.0, MOST) ** 2 - HALF**2 / 4), rel=1e-15)


def test_studies_compose_by_squares_and_the_rest_may_be_asked_for(ledger: Ledger) -> None:
    charge(ledger, "s1")
    charge(ledger, "s2")
    account = ledger.account("wards")
    assert account.charged_mu == compose_mu([HALF, HALF])
    # Two halves are less than the whole: squares add up, not epsilons.
    assert 0.70 < account.charged_epsilon < 0.75
    mu, epsilon = ledger.remaining("wards")
    charge(ledger, "rest", mu_of_budget(epsilon, MOST))
    assert not ledger.account("wards").overspent
    assert ledger.remaining("wards")[1] < 1e-3 * epsilon
    assert mu >= mu_of_budget(epsilon, MOST)


def test_a_budget_is_spent_to_its_very_edge(ledger: Ledger) -> None:
    charge(ledger, "all", mu_of_budget(1.0, MOST))
    assert ledger.remaining("wards") == (0.0, 0.0)
    refused(r"has epsilon 0\.0000 left of 1", charge, ledger, "more", 1e-9)


def test_the_same_study_is_charged_once(ledger: Ledger) -> None:
    charge(ledger, "s1")
    charge(ledger, "s1")
    charge(ledger, "s1", HALF / 3)
    assert ledger.account("wards").mus == (HALF,)
    ledger.settle("s1", Charge(HALF / 2), when=NOON)
    charge(ledger, "s1")
    assert ledger.account("wards").mus == (HALF / 2,)
    ledger.settle("s1", Charge(HALF / 3), when=NOON, note="second answer")
    assert ledger.account("wards").mus == (HALF / 2,)
    ledger.settle("s1", Charge(HALF / 1.5), when=NOON, note="third answer")
    assert ledger.account("wards").mus == (HALF / 1.5,)
    assert ledger.account("wards").frozen is None


def test_a_settled_study_may_not_ask_for_more(ledger: Ledger) -> None:
    charge(ledger, "s1")
    ledger.settle("s1", Charge(HALF / 2), when=NOON)
    refused(r"ended after mu 0\.\d+ had been reserved for it, and now asks for more, mu 0\.2", charge, ledger, "s1", 0.2)
    refused(
        "Start another study, with a store of its own",
        ledger.check,
        "wards",
        SpendingRequest("s1", "study s1", Charge(HALF, 1e-12)),
    )
    assert ledger.account("wards").mus == (HALF / 2,)


def test_a_reservation_may_grow_within_the_budget(ledger: Ledger) -> None:
    whole = mu_of_budget(1.0, MOST)
    charge(ledger, "s1")
    charge(ledger, "s1", whole)
    assert ledger.account("wards").mus == (whole,)
    refused("left of 1", charge, ledger, "s1", whole * 1.01)


def test_refusal_names_what_is_left_what_was_asked_and_the_remedy(ledger: Ledger, path: Path) -> None:
    charge(ledger, "s1", mu_of_budget(0.9, MOST))
    refusal = refused("", charge, ledger, "s2")
    left = ledger.remaining("wards")[1]
    sentence = refusal
    assert f"epsilon {math.floor(left * 1e4) / 1e4:.4f} left of 1" in sentence
    for words in ("asks for epsilon 0.5000 at delta 1e-06", "'wards'", f"--ledger {path} --account wards --budget"):
        assert words in sentence
    assert len(ledger.trace("wards")) == 1


@pytest.mark.parametrize("mu", [2.0, HALF * (1 + 1e-15), math.inf])
def test_a_study_that_cost_more_than_reserved_freezes_the_account(ledger: Ledger, mu: float) -> None:
    charge(ledger, "s1")
    ledger.settle("s1", Charge(mu), when=NOON)
    account = ledger.account("wards")
    assert account.frozen is not None
    assert "study 'study s1' cost mu" in account.frozen.reason
    assert account.charged_mu == mu
    assert account.overspent == (mu > 1)
    if mu > 1:
        assert account.charged_epsilon == epsilon_of_mu(mu, MOST)
    assert (account.remaining, account.remaining_epsilon, account.remaining_additive_delta) == (0.0, 0.0, 0.0)
    refused(r"'wards' is frozen since 2030-01-02T12:00:00\+00:00 .*--account wards --lift REASON", charge, ledger, "s2", 1e-6)
    # The restart of a study that is charged already is no new charge.
    charge(ledger, "s1")


def test_a_freeze_is_lifted_for_a_reason_and_stays_in_the_history(ledger: Ledger, path: Path) -> None:
    refused("not frozen", ledger.lift, "wards", "just so", when=NOON)
    charge(ledger, "s1", 0.05)
    ledger.settle("s1", Charge(0.06), when=NOON)
    refused("for a reason", ledger.lift, "wards", " ", when=NOON)
    lifted = ledger.lift("wards", "the bound of 0.05 was for other data", when=NOON)
    assert lifted.frozen is None
    (freeze,) = lifted.freezes
    assert (freeze.study, freeze.lifted_reason) == ("s1", "the bound of 0.05 was for other data")
    charge(ledger, "s2", 0.05)
    # The same answer again is no news; a worse one is.
    ledger.settle("s1", Charge(0.06), when=NOON)
    assert ledger.account("wards").frozen is None
    ledger.settle("s1", Charge(0.07), when=NOON)
    assert len(ledger.account("wards").freezes) == 2
    ledger.close()
    with Ledger.open(path) as again:
        assert again.account("wards").frozen is not None


@pytest.mark.parametrize("cost", [Charge(HALF / 2, 2e-10, 1e-12), Charge(HALF / 2, 1e-10, 1e-11), Charge(HALF * 1.01)])
def test_more_than_reserved_in_any_column(ledger: Ledger, cost: Charge) -> None:
    ledger.reserve("wards", SpendingRequest("s1", "study s1", Charge(HALF, 1e-10, 1e-12)), when=NOON)
    ledger.settle("s1", cost, when=NOON)
    account = ledger.account("wards")
    assert account.frozen is not None
    assert account.charged == cost


def test_an_answer_above_an_earlier_one_freezes_only_what_no_longer_fits(ledger: Ledger) -> None:
    whole = mu_of_budget(1.0, MOST)
    charge(ledger, "s1", whole)
    ledger.settle("s1", Charge(0.0), when=NOON)
    charge(ledger, "s2", whole)
    ledger.settle("s1", Charge(0.01), when=NOON)
    account = ledger.account("wards")
    assert account.overspent
    assert account.frozen is not None
    assert "more than was charged when it ended" in account.frozen.reason


# --- beta and tv -------------------------------------------------------------------------------------------------------------


def test_the_budget_is_split_and_both_parts_refuse(ledger: Ledger) -> None:
    budget = ledger.account("wards").budget
    assert budget.additive_delta == pytest.approx(1e-8)
    assert budget.other_delta == pytest.approx(0.99e-6)
    assert Fraction(budget.other_delta) + Fraction(budget.additive_delta) <= Fraction(1e-6)
    assert budget.limit == mu_of_budget(1.0, budget.other_delta)
    # The first study fixes the split: this one needs nothing beside mu.
    ledger.reserve("wards", SpendingRequest("s0", "first", Charge(0.05)), when=NOON)
    assert ledger.account("wards").budget == budget
    ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.1, 6e-9, 5e-10)), when=NOON)
    account = ledger.account("wards")
    assert account.charged_additive_delta == pytest.approx(6e-9 + (1 + math.e) * 5e-10)
    # A larger epsilon counts more of the rare events, and is not too little of what is charged.
    refused(r"epsilon 5 is too large for account 'wards'", ledger.set_budget, "wards", 5.0, 1e-6, when=NOON)
    with pytest.raises(InputError, match=r"study 'b' may fail with 3e-09 of delta .*'wards' has 2\.14e-09 left of the 1e-08"):
        ledger.reserve("wards", SpendingRequest("s2", "b", Charge(0.0, 3e-9)), when=NOON)
    refused("may fail with", ledger.reserve, "wards", SpendingRequest("s2", "b", Charge(0.0, 0.0, 1e-9)), when=NOON)
    refused("asks for epsilon", ledger.reserve, "wards", SpendingRequest("s2", "b", Charge(0.3, 1e-9)), when=NOON)
    ledger.reserve("wards", SpendingRequest("s2", "b", Charge(0.1, account.remaining_additive_delta)), when=NOON)
    ledger.settle("s1", Charge(0.1, 1e-9, 5e-10), when=NOON)
    assert ledger.account("wards").remaining_additive_delta == pytest.approx(5e-9)


def test_what_is_charged_beyond_the_part_for_it_is_counted_with_all_of_delta(ledger: Ledger) -> None:
    ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.2, 1e-9)), when=NOON)
    ledger.settle("s1", Charge(0.2, 4e-7), when=NOON)
    account = ledger.account("wards")
    assert account.charged_epsilon == Charge(0.2, 4e-7).epsilon(1e-6) > epsilon_of_mu(0.2, MOST)
    ledger.settle("s1", Charge(0.2, 2e-6), when=NOON)
    assert ledger.account("wards").charged_epsilon == math.inf


# --- rules -------------------------------------------------------------------------------------------------------------------


def request(study: str, charge: Charge) -> SpendingRequest:
    return SpendingRequest(study, study, charge)


def test_a_rule_is_fixed_when_an_account_is_made(ledger: Ledger) -> None:
    made = ledger.set_budget("pure", 1.0, 1e-6, when=NOON, rule=Rule.PURE)
    assert (made.rule, made.budget.limit, made.budget.additive_delta) == (Rule.PURE, 1.0, 1e-6)
    assert ledger.account("wards").rule == Rule.GAUSS
    refused("counts by the rule pure, not gauss", ledger.set_budget, "pure", 2.0, 1e-6, when=NOON, rule=Rule.GAUSS)
    assert ledger.set_budget("pure", 2.0, 1e-6, when=NOON).rule == Rule.PURE


def test_a_pure_account_adds_epsilons(ledger: Ledger) -> None:
    ledger.set_budget("pure", 1.0, 1e-6, when=NOON, rule=Rule.PURE)
    half = Charge.of_laplace(1024, 2048.0, tv=1e-20)
    ledger.reserve("pure", request("a", half), when=NOON)
    assert ledger.remaining("pure") == (0.5, 0.5)
    ledger.reserve("pure", request("b", half), when=NOON)
    account = ledger.account("pure")
    assert (account.charged_epsilon, account.remaining_epsilon) == (1.0, 0.0)
    refused(
        "asks for epsilon 0.1000 at delta 1e-06 but", ledger.reserve, "pure", request("c", Charge.of_mechanism(0.1)), when=NOON
    )
    refused("'d' has no epsilon at delta 0", ledger.reserve, "pure", request("d", Charge(0.01)), when=NOON)
    refused("may fail with 1e-05 of delta", ledger.reserve, "pure", request("e", Charge(0.0, 1e-5)), when=NOON)


def test_what_is_left_after_a_study_is_said_before_it(ledger: Ledger) -> None:
    before = ledger.account("wards")
    entry = asked(before, None, request("new", Charge(0.1)), "")
    ledger.reserve("wards", request("new", Charge(0.1)), when=NOON)
    assert before.with_entry(entry).remaining_epsilon == ledger.account("wards").remaining_epsilon < before.remaining_epsilon
    # Of persons that are known, each pays for it; again counts once.
    shared = replace(before, shares=(frozenset({"old"}), frozenset()))
    assert shared.with_entry(entry).remaining_epsilon == before.with_entry(entry).remaining_epsilon
    assert shared.with_entry(entry).with_entry(entry).entries == (entry,)


def test_what_part_a_study_takes_and_how_many_like_it_fit(ledger: Ledger) -> None:
    account = ledger.account("wards")

    def use(charge: Charge) -> tuple[float, int]:
        share, more = account.use_of(asked(account, None, request("new", charge), ""))
        return round(share, 6), more

    assert use(Charge(account.budget.limit / 2)) == (0.25, 3)
    # Of one study of a curator's Laplace noise of the same epsilon: what 19 studies of Gaussian noise take.
    share, more = use(Charge.of_laplace(2**20, 2.0**20))
    assert (round(share), more) == (19, 0)
    # Here beta is what there is least of.
    assert use(Charge(account.budget.limit / 2, beta=4e-7)) == (0.40404, 1)
    ledger.reserve("wards", request("old", Charge(account.budget.limit / 2)), when=NOON)
    account = ledger.account("wards")
    assert use(Charge(account.budget.limit / 2)) == (0.25, 2)
    for charge, count in ((account.budget.limit / 2, 2), (account.budget.limit / 9, 59), (account.budget.limit / 3.001, 5)):
        entries = [asked(account, None, request(f"s{number}", Charge(charge)), "") for number in range(count + 2)]
        assert use(Charge(charge))[1] == count
        assert account.budget.allows([entry.charged for entry in (*account.entries, *entries[: count + 1])])
        assert not account.budget.allows([entry.charged for entry in (*account.entries, *entries)])


def test_a_concentrated_account_adds_rho(ledger: Ledger) -> None:
    ledger.set_budget("rho", 3.0, 1e-6, when=NOON, rule=Rule.CONCENTRATED)
    most = ledger.account("rho").budget
    assert epsilon_of_rho(most.limit, most.other_delta) == pytest.approx(3.0, rel=1e-9)
    # Its own column is small, and its mu is not: so it needs less of this account than of one that adds squares of mu.
    ledger.reserve("rho", request("a", Charge(2.0, rho=most.limit / 2)), when=NOON)
    account = ledger.account("rho")
    assert account.remaining == pytest.approx(most.limit / 2)
    assert account.remaining_epsilon == pytest.approx(epsilon_of_mu(math.sqrt(most.limit), most.other_delta))
    ledger.reserve("rho", request("b", Charge(math.sqrt(2 * account.remaining) * (1 - 1e-12))), when=NOON)
    refused("asks for epsilon", ledger.reserve, "rho", request("c", Charge(0.01)), when=NOON)


# --- refunds -----------------------------------------------------------------------------------------------------------------


def test_no_refund_by_account_or_by_study(ledger: Ledger) -> None:
    ledger.set_budget("labs", 1.0, 1e-6, when=NOON, refund=Refund.NEVER)
    charge(ledger, "s1", account="labs")
    ledger.reserve("wards", SpendingRequest("s2", "b", Charge(HALF), refund=False), when=NOON)
    for account, study in (("labs", "s1"), ("wards", "s2")):
        entry = ledger.settle(study, Charge(HALF / 3), when=NOON)
        assert (entry.mu, entry.certified, entry.status) == (HALF, Charge(HALF / 3), SPENT)
        assert ledger.account(account).charged_mu == HALF
        assert ledger.account(account).frozen is None
    # It may be changed for later studies; those reserved before keep theirs.
    charge(ledger, "s3", 0.1, account="labs")
    assert ledger.set_budget("labs", 1.0, 1e-6, when=NOON, refund=Refund.SETTLED).refund == Refund.SETTLED
    charge(ledger, "s4", 0.1, account="labs")
    assert [ledger.settle(study, Charge(0.05), when=NOON).mu for study in ("s3", "s4")] == [0.1, 0.05]


# --- units and relations -----------------------------------------------------------------------------------------------------


def test_a_group_pays_for_each_of_its_members(ledger: Ledger) -> None:
    ledger.set_budget("whole", 1.0, 1e-6, when=NOON, unit=PrivacyUnit.PARTY)
    entry = ledger.reserve("whole", SpendingRequest("s1", "a", Charge(0.001, 0.0, 1e-15), members=50), when=NOON)
    assert entry.reserved == Charge(0.001, 0.0, 1e-15).of_group(50)
    assert ledger.settle("s1", Charge(0.0004), when=NOON).charged == Charge(0.0004).of_group(50)
    event = Charge(0.001, 1e-12)
    assert ledger.reserve("whole", SpendingRequest("s2", "b", event, members=50), when=NOON).reserved == event.of_group(50, 1.0)
    with pytest.raises(InputError, match="account 'whole' has rare events of groups, which were counted at epsilon 1"):
        ledger.set_budget("whole", 2.0, 1e-6, when=NOON)
    refused("a group of 0", ledger.reserve, "whole", SpendingRequest("s3", "c", Charge(0.001), members=0), when=NOON)
    # More than was reserved freezes.
    assert ledger.settle("s1", Charge(0.0004, 1e-10), when=NOON).charged == Charge(0.0004, 1e-10).of_group(50, 1.0)
    assert ledger.account("whole").frozen is not None


def test_add_remove_counts_twice_on_a_replacement_account_and_one_account_carries_both(ledger: Ledger) -> None:
    entry = ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.05), relation=Neighbouring.ADD_REMOVE), when=NOON)
    assert (entry.mu, entry.factor) == (Charge(0.05).of_group(2).mu, 2)
    ledger.set_budget("census", 1.0, 1e-6, when=NOON, relation=Neighbouring.ADD_REMOVE)
    ledger.reserve("census", SpendingRequest("s2", "b", Charge(0.05), relation=Neighbouring.ADD_REMOVE), when=NOON)
    ledger.settle("s2", Charge(0.04), when=NOON)
    ledger.check("census", SpendingRequest("s3", "c", Charge(0.05)))
    assert ledger.account("census").relation == Neighbouring.ADD_REMOVE
    for _ in range(2):
        ledger.reserve("census", SpendingRequest("s3", "c", Charge(0.05)), when=NOON)
    account = ledger.account("census")
    assert account.relation == Neighbouring.REPLACEMENT
    assert [(one.factor, one.mu) for one in account.entries] == [(2, Charge(0.04).of_group(2).mu), (1, 0.05)]
    # What the first one costs after all is counted twice, too.
    assert ledger.settle("s2", Charge(0.045), when=NOON).mu == Charge(0.045).of_group(2).mu


def test_what_was_charged_twice_must_have_room(ledger: Ledger) -> None:
    ledger.set_budget("census", 1.0, 1e-6, when=NOON, relation=Neighbouring.ADD_REMOVE)
    ledger.reserve("census", SpendingRequest("s1", "a", Charge(0.15), relation=Neighbouring.ADD_REMOVE), when=NOON)
    refused(
        r"account 'census' has epsilon 0\.0000 left",
        ledger.reserve,
        "census",
        SpendingRequest("s2", "b", Charge(0.01)),
        when=NOON,
    )
    # Nothing was changed by that.
    assert ledger.account("census").relation == Neighbouring.ADD_REMOVE
    ledger.reserve("census", SpendingRequest("s3", "c", Charge(0.01), relation=Neighbouring.ADD_REMOVE), when=NOON)


def test_an_account_is_one_data_sets(ledger: Ledger) -> None:
    assert ledger.account("wards").data_set == "wards"
    with pytest.raises(InputError, match=r"data set 'wards' has a budget per record under replacement already, account 'wards'"):
        ledger.set_budget("second", 1.0, 1e-6, when=NOON, data_set="wards")
    ledger.set_budget("second", 1.0, 1e-6, when=NOON, data_set="wards", unit=PrivacyUnit.PARTY)
    refused("about data set 'wards', not 'labs'", ledger.set_budget, "second", 1.0, 1e-6, when=NOON, data_set="labs")
    with pytest.raises(InputError, match="counts replacement, not add-remove"):
        ledger.set_budget("second", 1.0, 1e-6, when=NOON, relation=Neighbouring.ADD_REMOVE)
    with pytest.raises(InputError, match="about data set 'labs', account 'wards' about 'wards'"):
        ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.1), data_set="labs"), when=NOON)
    ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.1), data_set="wards"), when=NOON)


def of(*columns: NDArray[np.float64]) -> Inputs:
    return Inputs([np.column_stack(columns)])


def test_columns_are_the_same_in_however_many_pieces() -> None:
    rows = np.column_stack([np.linspace(-1, 1, 40), np.ones(40), np.full(40, np.nan)])
    rows[7, 0] = -0.0
    whole = Inputs([rows]).digests(b"key")
    assert len(whole) == 2
    plain = np.where(rows[:, 0] == 0, 0.0, rows[:, 0]).astype("<f8").tobytes()
    assert whole[0] == hmac.digest(b"key", b"quietmean-input-1" + plain, "sha256")
    for pieces in ([rows[:1], rows[1:0], rows[1:]], [rows[place : place + 7] for place in range(0, 40, 7)], iter([rows])):
        inputs = Inputs(pieces)
        assert inputs.digests(b"key") == inputs.digests(b"key") == whole
    assert Inputs().digests(b"key") == Inputs([np.empty((0, 3))]).digests(b"key") == ()


def test_accounts_that_were_charged_with_the_same_columns_are_named(ledger: Ledger, path: Path) -> None:
    ledger.set_budget("labs", 1.0, 1e-6, when=NOON)
    ledger.set_budget("clinic", 1.0, 1e-6, when=NOON)
    age, weight, ones = np.arange(20.0, 60.0), np.linspace(50, 90, 40), np.ones(40)
    ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.1)), when=NOON, inputs=of(age, ones))
    assert ledger.same_inputs("labs", of(weight, ones)) == ()
    assert ledger.same_inputs("labs", of(age[::-1])) == ()
    assert ledger.same_inputs("labs", of(weight, age.copy())) == ("wards",)
    # What was asked only leaves nothing behind.
    assert ledger.same_inputs("labs") == ()
    ledger.reserve("labs", SpendingRequest("s2", "b", Charge(0.1)), when=NOON, inputs=of(weight, age))
    ledger.reserve("labs", SpendingRequest("s2", "b", Charge(0.1)), when=NOON, inputs=of(weight, age))
    ledger.reserve("clinic", SpendingRequest("s3", "c", Charge(0.1)), when=NOON, inputs=of(ones, ones * 0.0))
    assert [ledger.same_inputs(name) for name in ("clinic", "labs", "wards")] == [(), ("wards",), ("labs",)]
    ledger.close()
    # Keyed digests, and no value: not even a plain hash that another ledger would have, too.
    content = path.read_bytes()
    for column in (age, weight):
        assert column[:2].tobytes() not in content
        assert hashlib.sha256(column.tobytes()).digest() not in content
    with Ledger.open(path.with_name("other"), create=True) as other:
        other.set_budget("wards", 1.0, 1e-6, when=NOON)
        other.reserve("wards", SpendingRequest("s1", "a", Charge(0.1)), when=NOON, inputs=of(age))
    stored = [
        {digest for (digest,) in sqlite3.connect(file).execute("SELECT digest FROM input")}
        for file in (path, path.with_name("other"))
    ]
    assert len(stored[0]) == 2
    assert stored[0].isdisjoint(stored[1])


def test_accounts_are_apart_but_a_study_has_one(ledger: Ledger) -> None:
    ledger.set_budget("labs", 2.0, 1e-5, when=NOON)
    charge(ledger, "s1")
    charge(ledger, "s2", 0.3, account="labs")
    assert [account.mus for account in ledger.accounts()] == [(0.3,), (HALF,)]
    refused("charged to account 'wards' already", charge, ledger, "s1", account="labs")


def test_what_hides_a_party_hides_a_record_but_not_the_other_way_round(ledger: Ledger) -> None:
    ledger.set_budget("whole", 1.0, 1e-6, when=NOON, unit=PrivacyUnit.PARTY)
    ledger.reserve("wards", SpendingRequest("s1", "a", Charge(0.01), unit=PrivacyUnit.PARTY), when=NOON)
    ledger.reserve("whole", SpendingRequest("s2", "b", Charge(0.01), unit=PrivacyUnit.PARTY), when=NOON)
    with pytest.raises(InputError, match="protects one record, account 'whole' counts per party"):
        ledger.reserve("whole", SpendingRequest("s3", "c", Charge(0.01)), when=NOON)
    refused("counts per party, not per record", ledger.set_budget, "whole", 2.0, 1e-6, when=NOON, unit=PrivacyUnit.RECORD)
    assert ledger.set_budget("whole", 2.0, 1e-6, when=NOON).unit == PrivacyUnit.PARTY


def test_budgets_rise_and_fall_but_not_below_what_is_charged(ledger: Ledger) -> None:
    charge(ledger, "s1")
    ledger.set_budget("wards", 2.0, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.6, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.5, 1e-6, when=NOON)
    ledger.set_budget("wards", 0.5, 1e-6, when=NOON)
    refused(r"less than what is charged to account 'wards', epsilon 0\.5000", ledger.set_budget, "wards", 0.4, 1e-6, when=NOON)
    account = ledger.account("wards")
    assert [budget.epsilon for budget in account.budgets] == [1.0, 2.0, 0.6, 0.5]
    ledger.settle("s1", Charge(1.0), when=NOON)
    # Overspent, it may rise by less than it needs.
    assert ledger.set_budget("wards", 0.7, 1e-6, when=NOON).overspent


# --- what is refused ---------------------------------------------------------------------------------------------------------


def test_impossible_numbers(ledger: Ledger) -> None:
    for mu in (-1.0, math.nan):
        refused("Choose a number >= 0", charge, ledger, "s1", mu)
        refused("Choose a number >= 0", Charge, mu)
    with pytest.raises(
        InputError, match=r"no bound on what it discloses is known \(gossip: none\)\. Agree .* no budget allows that"
    ):
        ledger.reserve("wards", SpendingRequest("s1", "a", Charge(math.inf), reason="gossip: none"), when=NOON)
    refused("Choose 0 < delta < 1", ledger.set_budget, "wards", 1.0, 0.0, when=NOON)
    refused("without a name", ledger.set_budget, " ", 1.0, 0.1, when=NOON)
    refused("Reserve it first", ledger.settle, "s1", Charge(1.0), when=NOON)
    raised(
        ValueError, "time zone", ledger.reserve, "wards", SpendingRequest("s1", "a", Charge(0.1)), when=NOON.replace(tzinfo=None)
    )
    assert ledger.trace("wards") == ()


def test_unknown_accounts_are_named(ledger: Ledger) -> None:
    refused(r"'labs' is not in ledger .* \(it has 'wards'\)", charge, ledger, "s1", account="labs")


def test_the_file_is_its_owners_only_with_a_log_ahead_and_full_sync(ledger: Ledger, path: Path) -> None:
    charge(ledger, "s1")
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["ada.ledger", "ada.ledger-shm", "ada.ledger-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    connection = sqlite3.connect(path, isolation_level=None)
    with Ledger.open(path, connect=lambda path: connection):
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_files_that_are_no_ledgers(path: Path, tmp_path: Path) -> None:
    refused("does not exist", Ledger.open, path)
    assert not path.exists()
    path.write_bytes(b"no database at all, but long enough to look like a file with some content" * 20)
    refused("not usable", Ledger.open, path)
    refused("cannot be opened", Ledger.open, tmp_path / "nowhere" / "ledger", create=True)
    refused("cannot be opened", Ledger.open, tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_file_is_not_a_ledger_until_one_is_made(content: bytes, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(content)
    asked = ["site", "budget", "--ledger", str(path)]
    for more in ([], ["--account", "wards"], ["--account", "wards", "--lift", "it was explained"]):
        with pytest.raises(SystemExit) as ended:
            main([*asked, *more])
        said = capsys.readouterr()
        assert (ended.value.code, said.out) == (2, "")
        assert f"file {path} is empty, not a ledger. Check the path, or make it with" in " ".join(said.err.split())
        assert (path.read_bytes(), list(path.parent.iterdir())) == (content, [path])
    # A process may have ended while it made one: the next one goes on.
    assert not Ledger.is_there(path)
    main([*asked, "--account", "wards", "--budget", "1", "1e-6"])
    assert Ledger.is_there(path)
    with Ledger.open(path) as book:
        assert [each.name for each in book.accounts()] == ["wards"]


@pytest.mark.parametrize("version", [0, 1])
def test_another_database_is_left_alone(path: Path, version: int) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("CREATE TABLE fact (name TEXT)")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    before = path.read_bytes()
    refused("holds a table of data, not a ledger", Ledger.open, path, create=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [1, 4, 6])
def test_unknown_schema_is_refused(path: Path, version: int) -> None:
    Ledger.open(path, create=True).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    refused(f"schema version {version}, this version of quietmean knows 5", Ledger.open, path)


def test_a_ledger_in_use_is_told(ledger: Ledger, path: Path) -> None:
    impatient = Ledger.open(path, connect=lambda path: sqlite3.connect(path, timeout=0.01, isolation_level=None))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused("in use by another process", charge, impatient, "s1")
    # Reading needs no turn.
    assert impatient.trace("wards") == ()
    other.execute("ROLLBACK")
    charge(impatient, "s1")
    impatient.close()
    other.close()


# --- the command -------------------------------------------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["site", "budget", *arguments])
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def test_budget_and_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = shown(capsys, "--ledger", str(path), "--account", "wards", "--budget", "1", "1e-6")
    assert made.startswith("Budget 'wards': 1.00 of epsilon 1 left per record (delta 1e-6)\n")
    assert "A record is not a person" in made
    assert "A person at k parties costs k times the loss (mu), and no ledger can see it." in " ".join(made.split())
    with Ledger.open(path) as book:
        book.reserve("wards", SpendingRequest("s1", "a [red]study[/red]\x1b[2J", Charge(HALF)), when=NOON)
    first = shown(capsys, "--ledger", str(path)).splitlines()
    assert len(first) <= 12
    assert max(map(len, first)) <= 80
    assert re.search(r"a \[red\]study.*2030-01-02  epsilon +[\d.]+  reserved", first[1])
    table = shown(capsys, "--ledger", str(path), "--details")
    assert first[-1] == MORE
    assert table.splitlines()[: len(first) - 1] == first[:-1]
    assert "account wards: epsilon " in table
    assert "[red]stud" in table
    assert "\x1b" not in table
    assert "2030-01-02T12:00:00 UTC  reserved" in table
    assert "0.5000" in table
    with Ledger.open(path) as book:
        book.settle("s1", Charge(math.inf), when=NOON, note="gave a value away")
    assert "! FROZEN      since 2030" in shown(capsys, "--ledger", str(path))
    frozen = shown(capsys, "--ledger", str(path), "--details")
    assert "FROZEN since 2030" in " ".join(frozen.split())
    assert "a [red]study[/red]?[2J: gave a value away" in frozen
    assert "final" in frozen
    lift = ("--ledger", str(path), "--account", "wards", "--lift", "seen and understood", "--details")
    lifted = shown(capsys, *lift)
    assert "Budget 'wards': nothing left" in lifted
    assert "! OVERSPENT" in lifted
    assert "more than the budget, nothing left" in " ".join(lifted.split())
    assert "seen and understood" in lifted


def test_many_entries_are_the_latest_and_a_count(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "--ledger", str(path), "--account", "wards", "--budget", "50", "1e-6")
    with Ledger.open(path) as book:
        for number in range(20):
            book.reserve("wards", SpendingRequest(f"s{number}", f"study {number}", Charge(0.3)), when=NOON)
    first, details = (shown(capsys, "--ledger", str(path), *more) for more in ((), ("--details",)))
    assert len(first.splitlines()) <= 12
    assert "study 19 " in first
    assert "study 1 " not in first
    assert "and 14 earlier entries: --details" in first
    assert all(f"study {number} " in details for number in range(20))


def test_one_json_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, "--ledger", str(path), "--account", "labs", "--budget", "2", "1e-5", "--unit", "party")
    shown(capsys, "--ledger", str(path), "--account", "labs", "--budget", "3", "1e-5")
    shown(capsys, "--ledger", str(path), "--account", "wards", "--budget", "1", "1e-6")
    with Ledger.open(path) as book:
        charge(book, "s1")
        book.settle("s1", Charge(math.inf), when=NOON)
    document: dict[str, Any] = json.loads(shown(capsys, "--ledger", str(path), "--json"))
    labs, wards = document["accounts"]
    assert (labs["account"], labs["unit"], labs["epsilon"], labs["entries"]) == ("labs", "party", 3.0, [])
    assert [budget["epsilon"] for budget in labs["budgets"]] == [2.0, 3.0]
    assert (wards["charged_mu"], wards["charged_epsilon"], wards["overspent"]) == ("inf", "inf", True)
    assert wards["entries"][0]["status"] == "spent"
    assert wards["frozen"]["since"] == wards["freezes"][0]["since"]
    assert (wards["data_set"], wards["relation"], wards["refund"]) == ("wards", "replacement", "settled")
    assert (labs["frozen"], labs["same_inputs"], labs["charged_beta"]) == (None, [], 0.0)
    only: dict[str, Any] = json.loads(shown(capsys, "--ledger", str(path), "--account", "labs", "--json"))
    assert [account["account"] for account in only["accounts"]] == ["labs"]


def test_a_freeze_at_the_end_of_a_study_is_on_standard_error_too(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    charge(ledger, "s1")
    show_balance(ledger.account("wards"))
    assert capsys.readouterr().err == ""
    ledger.settle("s1", Charge(2.0), when=NOON)
    show_balance(ledger.account("wards"))
    output = capsys.readouterr()
    assert "FROZEN since 2030-01-02" in output.out
    assert "account wards is frozen, nothing more is reserved on it until a person lifts it" in output.err
    assert balance_json(ledger.account("wards"))["frozen"] == {
        "since": "2030-01-02T12:00:00+00:00",
        "reason": f"study 'study s1' cost mu 2 where mu {HALF:.6g} was reserved as a bound",
    }


def test_without_a_name_it_is_what_studies_are_charged_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever never named a ledger finds what was charged, and sets the budget that counts."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    shown(capsys, "--account", "a", "--budget", "1", "1e-6")
    payer = payer_for(Policy.load(None), PrivacyUnit.RECORD, "a", PaymentOptions())
    assert payer is not None
    assert payer.ledger == tmp_path / "data" / "quietmean" / "ledger"
    assert payer.ledger.exists()
    policy, own = tmp_path / "policy.toml", tmp_path / "own.ledger"
    policy.write_text(f'[budget]\nepsilon = 8.0\nledger = "{own}"\n')
    fails(f"site budget --policy {policy}", capsys, str(own))
    shown(capsys, "--policy", str(policy), "--account", "b", "--budget", "2", "1e-6")
    assert "Budget 'b': " in shown(capsys, "--ledger", str(own))
    assert "Budget 'a': " in shown(capsys)


@refused_rows("mistakes")
def test_mistakes(line: str, words: str, ledger: Ledger, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.set_budget("a", 1.0, 1e-6, when=NOON)
    fails(f"site budget --ledger {path} {line}", capsys, words)
    assert [account.budget.epsilon for account in ledger.accounts()] == [1.0, 1.0]


@pytest.mark.parametrize("epsilon", [1.0, 8.0, 20.0])
@pytest.mark.parametrize("budget", [10.0, 30.0, 60.0, 100.0, 600.0])
@pytest.mark.parametrize("mechanism", [qm.LocalDP(), qm.PackedSharing()], ids=lambda mechanism: mechanism.name)
def test_a_budget_of_any_size_takes_a_study_or_says_why(tmp_path: Path, mechanism: Any, budget: float, epsilon: float) -> None:
    """A budget of 60 at 1e-4 had no part of delta left for mu, and the error spoke of a delta that nobody gave."""
    charge = mechanism.calibrate(qm.Target(parties=8, epsilon=epsilon, delta=1e-6)).charge
    with Ledger.open(tmp_path / "ledger", create=True) as book:
        book.set_budget("a", budget, 1e-4, when=NOON)
        said = ""
        try:
            book.reserve("a", SpendingRequest("s", "s", charge), when=NOON)
        except InputError as error:
            said = str(error)
        account = book.account("a")
        assert account.charged_epsilon <= budget
        assert (account.remaining_epsilon > 0) == (not said) or "study 's' asks for" in said or "study 's' may fail" in said, said
