"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Derandomised: the same examples on every run and machine, so that a red run can be repeated.
settings.register_profile(
    "quietmean", derandomize=True, deadline=None, max_examples=60, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quietmean")
