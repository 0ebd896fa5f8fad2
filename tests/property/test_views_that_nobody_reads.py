"""Where the mu that counts is of how many collude, certificates are those of every coalition's view, which nobody works out."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.node.local import Kill, run_together
from quietmean.planning import Target
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import configure
from quietmean.protocols.packed_sharing.encoding import PackedLossConversion


@pytest.mark.parametrize("options", [{}, {"noise": "laplace"}], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("gone", [[], [1], [0, 5]], ids=["all", "one-gone", "two-gone"])
def test_packed_sharing(options: dict[str, str], gone: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = calibrate(Target(9, 1.0, 1e-6, colluding=2, dropouts=0.3), configure("packed-sharing", options))
    outcome = run_together(plan, np.zeros((9, 1)), kills=[Kill(party, 1) for party in gone])
    execution = next(iter(outcome.results.values())).execution
    for size in range(1, 5):
        fast = execution.privacy(1e-6).coalitions(size)
        with monkeypatch.context() as patch:
            patch.setattr(PackedLossConversion, "reads_view", True)
            slow = execution.privacy(1e-6).coalitions(size)
        assert fast.mu.tolist() == slow.mu.tolist()
        assert (fast.worst, fast.tried, fast.scope, fast.exact) == (slow.worst, slow.tried, slow.scope, slow.exact)
