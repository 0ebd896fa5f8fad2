"""What a plan would be with the other kind of noise: its error, and what it takes of an account of many studies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.readable import plain
from quietmean.core.schema import options_of
from quietmean.ledger.account import over_gaussian
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.protocols import configure

_NOISE, _LAPLACE = "noise", "laplace"


def other_noise(plan: Plan, options: Mapping[str, Any]) -> str | None:
    """One sentence on Laplace noise for a plan of Gaussian noise, and the reverse. None where the protocol has one kind only.

    ``options``: those that were asked for. Both errors are predicted, and lost values are in neither; of an account of rule
    gauss a study takes the square of its mu. Laplace noise takes more at equal (epsilon, delta), and is
    chosen unasked for one private count alone.
    """
    option = options_of(type(plan.protocol)).get(_NOISE)
    if option is None or _LAPLACE not in option.choices or plan.target.nats is not None:
        return None
    has_laplace = str(getattr(plan.protocol, _NOISE)) == _LAPLACE
    others = {name: value for name, value in options.items() if name != _NOISE}
    try:
        protocol = configure(plan.protocol.name, others if has_laplace else {**others, _NOISE: _LAPLACE})
        other = calibrate(plan.target, protocol)
        other = other if plan.domain is None else other.with_domain(plan.domain)
    except InputError:
        return None
    mine, others_error = (float(one.prediction.get("mse_noise", 0.0)) for one in (plan, other))
    if not (mine and others_error and math.isfinite(plan.a_priori.mu)):
        return None
    times = over_gaussian((plan if has_laplace else other).charge, plan.target.delta) or 1.0
    error, share = math.sqrt(others_error / mine), 1 / times if has_laplace else times
    said = f"--with {_NOISE}={_LAPLACE}"
    noise = f"Gaussian noise (without {said})" if has_laplace else f"Laplace noise ({said})"
    return (
        f"{noise} would be {plain(error, 2)} times as large; if several studies share one budget, it takes {plain(share, 2)} "
        "times as much of it"
    )
