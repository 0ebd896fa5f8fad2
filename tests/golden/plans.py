"""Plans as the command makes them."""

from __future__ import annotations

import json
from typing import Any

from golden.compare import differences
from golden.interfaces import canonical_json, command

# By formula: the target is met without simulated executions.
DESIGNED = {
    "secagg": "--parties 20 --protocol secagg --colluding 3 --dropouts 0.1",
    "secagg-plus": "--parties 40 --protocol secagg-plus --dimension 5 --delta 1e-5",
    "cordp-dme": "--parties 20 --protocol cordp-dme --domain unit-ball --with decoder=biased --dropouts 0.1",
    "curator": "--parties 10 --server curator --protocol central-dp --protocol local-dp --dropouts 0.2 --unit record",
    "priv-unit-g": "--parties 10 --protocol priv-unit-g --domain unit-ball --dimension 4",
    "consensus": "--parties 8 --protocol consensus --colluding 1 --dimension 2",
    "gopa-peers": "--parties 20 --protocol gopa --colluding 2 --dropouts 0.1 --dimension 3",
}
# The same with float64 noise.
FLOATS = {
    "cordp-dme-float64": f"{DESIGNED['cordp-dme']} --with noise=insecure-float64",
    "curator-float64": f"{DESIGNED['curator']} --with noise=insecure-float64",
    "consensus-float64": f"{DESIGNED['consensus']} --with noise=insecure-float64",
}
# Calibrated on simulated executions.
CALIBRATED = {
    "inca": "--parties 8 --protocol inca --colluding 1 --with rounds=3 --epsilon 2 --delta 1e-4 --sensitivity 0.5",
    "inca-grid": "--parties 8 --protocol inca --with value-bits=32 --with largest-value=1 --with rounds=3 --colluding 1 "
    "--dimension 2",
    "gopa": "--parties 8 --protocol gopa --colluding 1 --dropouts 0.13 --with partners=7 --with aggregator=0",
    "muffliato": "--parties 8 --protocol muffliato --colluding 1 --with rounds=2",
    "gossip": "--parties 10 --protocol gossip --no-privacy --with rounds=3",
    "ranking": "--parties 8 --epsilon 2 --delta 1e-4 --details --protocol consensus --protocol cordp-dme --protocol local-dp",
}
CALIBRATED["inca-float64"] = f"{CALIBRATED['inca']} --with noise=insecure-float64"
DESIGNED |= FLOATS
PLANS = DESIGNED | CALIBRATED


def planned(arguments: list[str]) -> dict[str, Any]:
    """The answer of ``quietmean plan --json``, and the plan that it saves."""
    code, text, files = command(["plan", *arguments, "--json", "--out", "new-plan.json"], {})
    if code:
        raise AssertionError(f"plan {' '.join(arguments)} ended with code {code}")
    return {"answer": json.loads(text), "plan": files["new-plan.json"]}


def changes(golden: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Where a plan made anew differs from the golden one. If its numbers do in their last bits, so does its digest."""
    kept = {"answer": found["answer"], "plan": found["plan"]}
    if canonical_json(golden["plan"]) != canonical_json(found["plan"]):
        first = found["answer"]["candidates"][0] | {"digest": golden["answer"]["candidates"][0]["digest"]}
        candidates = [first, *found["answer"]["candidates"][1:]]
        kept["answer"] = found["answer"] | {"candidates": candidates}
    return differences({"answer": golden["answer"], "plan": golden["plan"]}, kept)
