"""Sessions: the budget of many rounds, who is in each, and that nothing is ever overspent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quietmean as qm
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.privacy import Charge, compose
from quietmean.sessions import MemoryEngine, SessionTerms
from quietmean.sessions.round_mean import clipped_rows, clipped_vector, norms
from support.effort import examples
from support.refusals import raised, refused, refused_rows

PARTIES = 6


def session(**changed: Any) -> qm.Session:
    asked = {"parties": PARTIES, "dimension": 3, "epsilon": 2.0, "delta": 1e-6, "rounds": 5, "dropouts": 0.34}
    return qm.Session(**(asked | changed))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("protocol", ["auto", "local-dp", "central-dp", "secagg"])
@pytest.mark.parametrize("rounds", [1, 50])
def test_all_rounds_together_keep_the_budget_and_waste_none_of_it(protocol: str, rounds: int) -> None:
    made = session(protocol=protocol, rounds=rounds)
    whole = made.terms.charge(rounds)
    assert 0.97 * 2.0 < whole.epsilon(1e-6) <= 2.0
    # A wrong way to count rejects itself: one round more is too much, and so is adding epsilons up.
    assert compose([made.terms.plan.charge] * (rounds + 1)).epsilon(1e-6) > 2.0
    alone = made.terms.plan.charge.epsilon(1e-6)
    assert rounds == 1 or rounds * alone > 2.0


def test_mu_adds_in_squares() -> None:
    plan = session(rounds=4).terms.plan
    assert session(rounds=4).terms.charge(4).mu == pytest.approx(2 * plan.charge.mu)


def test_the_noise_is_that_of_the_plan() -> None:
    made = session(parties=12, dimension=400, epsilon=8.0, rounds=3, dropouts=0.0, clip=5.0)
    errors = [made.mean(np.zeros((12, 400))).mean for _ in range(3)]
    spread = float(np.std(errors))
    assert spread == pytest.approx(made.noise(), rel=0.15)


def test_the_mean_is_near_the_truth_in_the_units_of_the_vectors() -> None:
    made = session(epsilon=25.0, delta=0.01, clip=20.0, dropouts=0.0)
    vectors = np.arange(18.0).reshape(6, 3) / 2
    result = made.mean(vectors)
    assert np.allclose(result.mean, vectors.mean(axis=0), atol=6 * result.standard_error)
    assert np.asarray(result).shape == (3,)
    assert result.counted == tuple(range(6))


def test_weights_are_public_and_the_mean_is_theirs() -> None:
    weights = [1.0, 2.0, 3.0, 4.0, 5.0, 15.0]
    made = session(epsilon=25.0, delta=0.01, clip=4.0, weights=weights)
    vectors = np.arange(18.0).reshape(6, 3) / 10
    result = made.mean([None, *vectors[1:]])
    assert np.allclose(result.mean, np.average(vectors[1:], axis=0, weights=weights[1:]), atol=6 * result.standard_error)


def test_records_count_alike_whoever_has_them() -> None:
    made = session(epsilon=25.0, delta=0.01, clip=4.0, unit="record")
    rows = np.random.default_rng(5).normal(size=(60, 3))
    parts = np.split(rows, [3, 10, 11, 40, 50])
    result = made.mean(parts)
    expected = np.mean([row * min(1, 4 / np.linalg.norm(row)) for row in rows], axis=0)
    assert np.allclose(result.mean, expected, atol=6 * result.standard_error)


def test_different_parties_are_missing_in_different_rounds() -> None:
    made = session(epsilon=25.0, delta=0.01)
    vectors = np.eye(6, 3)
    for gone in (0, 3, 5):
        there = [None if party == gone else vector for party, vector in enumerate(vectors)]
        result = made.mean(there)
        assert gone not in result.counted
        assert np.allclose(result.mean, np.delete(vectors, gone, 0).mean(axis=0), atol=6 * result.standard_error)
    assert made.mean(vectors).counted == tuple(range(6))


def test_a_session_that_is_over_keeps_what_it_has(tmp_path: Path) -> None:
    made = session(rounds=2, store=tmp_path / "account.json")
    made.mean(np.zeros((6, 3)))
    made.mean(np.zeros((6, 3)))
    before = made.epsilon
    refused(r"2 rounds are over and its budget is spent", made.mean, np.zeros((6, 3)))
    assert made.over
    assert made.epsilon == before <= 2.0
    # Nor does another process get more.
    refused("rounds are over", session(rounds=2, store=tmp_path / "account.json").mean, np.zeros((6, 3)))


def test_a_round_that_was_cut_off_is_paid_for_and_the_session_goes_on(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    class Breaking:
        def exchange(self, *arguments: object) -> Any:
            raise Killed

    store = tmp_path / "account.json"
    raised(Killed, "", session(store=store, engine=Breaking()).mean, np.zeros((6, 3)))
    again = session(store=store)
    assert again.begun == 1
    assert again.mean(np.zeros((6, 3))).round == 2


def test_the_store_does_not_grow_with_rounds(tmp_path: Path) -> None:
    made = session(rounds=50, store=tmp_path / "account.json")
    sizes = set()
    for _ in range(9):
        made.mean(np.zeros((6, 3)))
        sizes.add(sum(file.stat().st_size for file in tmp_path.iterdir()))
    assert len(sizes) == 1


def test_a_store_of_other_terms_is_refused(tmp_path: Path) -> None:
    session(store=tmp_path / "account.json").mean(np.zeros((6, 3)))
    refused("belongs to a session with other terms", session, epsilon=3.0, store=tmp_path / "account.json")
    (tmp_path / "other.json").write_text("{}")
    refused("is not an account of a session", session, store=tmp_path / "other.json")


@refused_rows("terms_that_cannot_be_are_refused_in_one_sentence")
def test_terms_that_cannot_be_are_refused_in_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    refused(sentence, session, **wrong)


@pytest.mark.parametrize(
    "vectors",
    [np.zeros((5, 3)), np.zeros((6, 4)), [None] * 6, {9: np.zeros(3)}, [["a", 1, 2]] + [None] * 5, np.zeros((6, 1, 3))],
)
def test_a_vector_that_does_not_fit_costs_nothing(vectors: Any) -> None:
    made = session()
    refused("", made.mean, vectors)
    assert made.begun == 0


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_whatever_happens_in_rounds_nothing_is_overspent(data: st.DataObject) -> None:
    """Absences, parties that are killed in a round and are back in the next, more calls than rounds."""
    made = session(rounds=4, dropouts=0.2)
    begun, spent = 0, 0.0
    for _ in range(6):
        there = data.draw(st.lists(st.booleans(), min_size=PARTIES, max_size=PARTIES))
        last = st.integers(0, made.terms.plan.protocol.rounds)
        killed = data.draw(st.dictionaries(st.integers(0, PARTIES - 1), last, max_size=PARTIES))
        vectors = [np.full(3, 1e9) if here else None for here in there]
        try:
            result = made.mean(vectors, leaves=killed)
        except InputError:
            assert made.over or sum(there) < made.terms.plan.protocol.minimum  # type: ignore[attr-defined]
        except ProtocolFailure:
            begun += 1
        else:
            begun += 1
            assert set(result.counted) <= {party for party, here in enumerate(there) if here}
            assert len(result.counted) >= made.terms.plan.protocol.minimum  # type: ignore[attr-defined]
            # Nor does the execution that happened cost more than was promised for a round.
            certificate = result.execution.privacy(1e-6).coalitions(made.terms.colluding)
            assert certificate.mu.max() <= made.terms.plan.charge.mu * (1 + 1e-9)
        assert made.begun == begun <= 4
        assert spent <= made.epsilon <= 2.0
        spent = made.epsilon
        assert made.account.spent == (compose([made.terms.plan.charge] * begun) if begun else Charge(0.0))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=4, max_size=4), min_size=1, max_size=5),
    st.floats(1e-6, 1e6),
)
def test_whatever_a_vector_holds_it_enters_within_the_unit_ball(rows: list[list[float]], bound: float) -> None:
    array = np.array(rows)
    assert all(np.linalg.norm(clipped_vector(row, bound)) <= 1.0 for row in array)
    assert np.linalg.norm(clipped_rows(array, bound, 2.0**-20)) <= len(rows)
    assert np.isfinite(norms(array)).all()


def test_fresh_noise_in_each_round() -> None:
    made = session(dimension=50)
    one, other = made.mean(np.zeros((6, 50))), made.mean(np.zeros((6, 50)))
    assert not np.array_equal(one.mean, other.mean)


def test_with_noise_from_a_seed_a_session_is_the_same_again() -> None:
    from quietmean.randomness.insecure import InsecurePopulationNoise

    noise: Callable[[int, int], Any] = InsecurePopulationNoise
    one, other = (session(engine=MemoryEngine(noise)) for _ in range(2))
    assert np.array_equal(one.mean(np.ones((6, 3))).mean, other.mean(np.ones((6, 3))).mean)


def test_terms_are_agreed_on_by_their_digest() -> None:
    terms = SessionTerms(parties=4, dimension=2, epsilon=1.0, delta=1e-6, rounds=3)
    same = SessionTerms(parties=4, dimension=2, epsilon=1.0, delta=1e-6, rounds=3)
    assert terms.digest == same.digest
    assert terms.digest != SessionTerms(parties=4, dimension=2, epsilon=1.0, delta=1e-6, rounds=4).digest
