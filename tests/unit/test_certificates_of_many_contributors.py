"""What a committee opened of very many contributors is certified and shown in time: its figure is the same whoever colludes."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace
from quietmean.planning.calibrate import calibrate
from quietmean.privacy.certificate import Scope
from quietmean.privacy.information import CoalitionSolver
from quietmean.protocols import Target
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from support.refusals import refused


def execution_of(contributors: int, dimension: int = 3) -> Execution:
    target = Target(contributors, 1.0, 1e-6, dimension, dimension**0.5, colluding=1, committee=Committee(5, 1, 1))
    plan = calibrate(target, CommitteeSharing())
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, contributors)
    # Some do not come.
    return plan.execution(Seed.public("many"), everyone, np.ones(contributors)).without(frozenset({0, 2}))


def test_no_coalition_is_tried_where_all_have_the_same_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An information matrix of n contributors has n^2 numbers and takes n^3 steps, for each of n coalitions."""

    def never(*arguments: object) -> object:
        raise AssertionError("a coalition was tried")

    monkeypatch.setattr(CoalitionSolver, "information", never)
    monkeypatch.setattr(CoalitionSolver, "against", never)
    certificate = execution_of(20_000).privacy(1e-6).coalitions(1)
    assert (certificate.scope, certificate.tried, certificate.found) == (Scope.BOUNDED, 0, None)
    assert certificate.max_epsilon <= 1.0
    assert "any 1 of the 5 members and all other contributors together" in certificate.describe()
    # Computed once, for all of them.
    assert len(set(certificate.epsilon.tolist())) == 1
    refused("leaves nobody honest", execution_of(6).privacy(1e-6).coalitions, 6)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_it_is_what_trying_each_coalition_gives(size: int) -> None:
    privacy = execution_of(6).privacy(1e-6)
    proven = privacy.coalitions(size)
    for party in range(6):
        coalition = [other for other in range(6) if other != party][:size]
        certificate = privacy.against(coalition)
        assert certificate.mu_upper[certificate.honest.index(party)] == proven.mu[party]
