"""The differencing attack of examples/differencing.py: it finds a person in exact sums, and noise in quietmean's.

The mean square of 200 errors over its prediction is chi-squared with 200 degrees of freedom, over 200. Each column is accepted
between the quantiles of 1e-6 and 1 - 1e-6: the test fails by chance with a probability of 6e-6 at most, over three columns.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from quietmean.protocols.local_dp import LocalDP
from quietmean.studies.agreement.study import StudyTerms

ROOT = Path(__file__).parents[2]
TAIL = 1e-6


@pytest.fixture(scope="module")
def differencing() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differencing", ROOT / "examples" / "differencing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["differencing"] = module
    spec.loader.exec_module(module)
    return module


def test_exact_sums_and_covariances_give_the_record(differencing: ModuleType) -> None:
    attack = differencing.attack_exact(differencing.make_records())
    np.testing.assert_allclose(attack.found[0], attack.record, rtol=1e-8)


def ratios(differencing: ModuleType, study: StudyTerms) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Mean squared errors of the attack over what the plan says."""
    attack = differencing.attack_private(differencing.make_records(), study)
    # Far beyond the width of the bounds: nothing is learnt that a guess inside of them would not say.
    assert (attack.predicted > differencing.WIDTHS).all()
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = (attack.error / attack.predicted) ** 2
    return found


@pytest.mark.slow
def test_quietmean_gives_noise_of_the_size_that_the_plan_says(differencing: ModuleType) -> None:
    found = ratios(differencing, differencing.make_study())
    print(found)
    low, high = stats.chi2.ppf([TAIL, 1 - TAIL], differencing.STUDIES) / differencing.STUDIES
    assert ((low < found) & (found < high)).all()


@pytest.mark.slow
def test_less_noise_than_planned_is_found(differencing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with half the noise in the machines' batch, and all of it in the transcript."""
    batch = LocalDP.batch
    monkeypatch.setattr(LocalDP, "batch", lambda self, *rest: batch(replace(self, sigma=self.sigma / 2), *rest))
    low = stats.chi2.ppf(TAIL, differencing.STUDIES) / differencing.STUDIES
    assert (ratios(differencing, differencing.make_study()) < low).all()


@pytest.mark.slow
def test_the_page_shows_what_the_script_prints(differencing: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    differencing.main()
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "how-to" / "differencing.md").read_text()
