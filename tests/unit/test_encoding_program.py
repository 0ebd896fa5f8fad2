"""The public program of a study is what its workload does, to the last bit; what is none is refused with the column."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.form import form_page
from quietmean.statistics import Workload, registry
from quietmean.statistics.program import NoProgram, VectorProgram
from quietmean.studies.agreement.contribution import session_of, sharing_of
from quietmean.studies.agreement.program import EncodingProgram, program_digest, require_program
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from support.drawn_programs import drawn_columns, drawn_programs, drawn_records
from support.every_kind import statistics_of
from support.survey import Survey

SEED = 20261130


def asked_of(workload: Workload) -> bool:
    """Whether its statistics are of this unit."""
    try:
        return bool(workload.scales)
    except InputError:
        return False


def program_or_why(workload: Workload) -> tuple[VectorProgram | None, str]:
    try:
        return VectorProgram.of(workload), ""
    except NoProgram as error:
        return None, str(error)


def test_every_kind_of_statistic_has_its_program_or_is_refused_with_a_column() -> None:
    drawn, with_one = np.random.default_rng(SEED), set()
    for name, kind in registry().items():
        for statistic in statistics_of(kind):
            for unit in PrivacyUnit.RECORD, PrivacyUnit.PARTY:
                columns = drawn_columns(drawn)
                workload = Workload(columns, (statistic,), unit)
                if not asked_of(workload):
                    continue
                program, why = program_or_why(workload)
                if program is None:
                    assert any(f"{column!r}" in why for column in columns.names)
                    continue
                with_one.add(name)
                records = drawn_records(drawn, columns, 64)
                vectors = program.vectors(records)
                np.testing.assert_array_equal(vectors, workload.of_records(records))
                # Of one record, what a party hands in is the same whatever is protected.
                alone = [workload.encode(record[None]).vector for record in records[:8]]
                np.testing.assert_array_equal(vectors[:8], alone)
    assert {"mean", "variance", "proportion", "crosstab", "group-means", "histogram", "correlation", "count"} <= with_one
    assert {"quantiles", "mann-whitney", "roc", "survival", "linear-regression"} <= with_one


def test_programs_of_several_statistics_with_conditions_are_what_workloads_do() -> None:
    for each in drawn_programs(np.random.default_rng(SEED), 30, rows=16):
        assert each.workload is not None
        vectors = each.program.vector.vectors(each.records)
        np.testing.assert_array_equal(vectors, each.workload.of_records(each.records))
        whole = each.workload.encode(each.records, vectors=each.program.vector.vectors)
        np.testing.assert_array_equal(whole.vector, vectors.sum(axis=0))


def test_a_program_is_json_and_takes_only_what_stands_before() -> None:
    for each in drawn_programs(np.random.default_rng(SEED + 1), 20):
        program = json.loads(each.program.content)
        assert program == json.loads(json.dumps(each.program.describe()))
        for place, (name, *given) in enumerate(program["record"]["operations"]):
            assert name in ("constant", "cell") or all(0 <= before < place for before in given[name == "look up" :])
        # Each operation once.
        texts = [json.dumps(operation) for operation in program["record"]["operations"]]
        assert len(set(texts)) == len(texts)


def _terms(*ask: str, **committee: object) -> StudyTerms:
    general = {"name": "wages", "unit": "record", "epsilon": 8.0, "delta": 1e-6, "accept_wide": True, "ask": list(ask)}
    members = {"members": 5, "contribute_by": "2031-01-01T00:00:00Z", "grace": 0.0, "largest_weight": 1.0, **committee}
    return StudyTerms.parse({**general, "committee": members})


@pytest.mark.parametrize("verified", [False, True])
def test_numbers_of_a_program_are_those_that_a_contributor_deals(verified: bool) -> None:
    terms = _terms("quantiles(pay in 0..200000, bins=8)", "crosstab(job in {a, b}, sex in {f, m})", verified=verified)
    plan = terms.choice(40).plan
    program = EncodingProgram.of(terms.workload, plan)
    parameters = sharing_of(plan).parameters(40)
    drawn = np.random.default_rng(SEED)
    records = np.column_stack([drawn.uniform(-1e4, 3e5, 200), drawn.integers(2, size=200), drawn.integers(2, size=200)])
    records[drawn.random(records.shape) < 0.1] = np.nan
    mean = np.zeros(plan.target.dimension)
    for record in records:
        vector = terms.workload.encode(record[None]).vector
        # It lies in the domain as it is: nothing moves it.
        assert plan.admit(vector, 1.0).vector is vector
        numbers = program.numbers(record[None], drawn.random((1, len(vector))))[0]
        exact = (vector - parameters.centre) / parameters.step + program.shift
        assert (np.abs(numbers - exact) < 1).all()
        assert ((numbers >= program.lows) & (numbers <= program.highs)).all()
        for places, factors, low, high in program.relations:
            assert low <= np.dot(factors, numbers[list(places)]) <= high
        mean += numbers - exact
    # Up or down with the right mean: 200 draws of at most 1/4 each; 6 standard deviations, 2e-9 a coordinate.
    assert (np.abs(mean) < 6 * np.sqrt(200) / 2).all()
    assert bool(program.relations) == verified


def test_another_program_is_refused_and_none_is_said_of_studies_without() -> None:
    terms = _terms("mean(pay in 0..200000)")
    plan = terms.choice(40).plan
    digest = program_digest(terms.workload, plan)
    for stated, made in ((digest, digest), ("", "")):
        require_program(stated, made)
    for stated, made in ((digest[::-1], digest), ("", digest), (digest, "")):
        with pytest.raises(InputError, match="another encoding program"):
            require_program(stated, made)
    transformed = _terms("mean(log(pay in 1..200000))")
    assert program_digest(transformed.workload, transformed.choice(40).plan) == ""
    others = [_terms(f"mean(pay in 0..{bound})") for bound in (100, 200)]
    digests = [program_digest(each.workload, each.choice(40).plan) for each in others]
    assert all(one != other for one, other in pairwise([digest, *digests]))


def test_who_takes_part_finds_another_program_before_anything_is_signed(tmp_path: Path) -> None:
    survey = Survey(tmp_path, ask=("mean(pay in 0..200000)",), vouchers=5)
    assert session_of(survey.sealed, survey.choice.plan).session.hex() == survey.sealed.digest
    for stated in "0" * 64, "":
        other = survey.sealed.with_program(stated, survey.study.identities["m1"])
        # It is another session, signed by its coordinator all the same.
        assert other.digest != survey.sealed.digest
        assert Sealed.verified(other.signed) == other
        with pytest.raises(InputError, match="another encoding program"):
            session_of(other, survey.choice.plan)
        with pytest.raises(InputError, match="another encoding program"):
            form_page(other, survey.choice, survey.drop)
