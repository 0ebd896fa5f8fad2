"""What the command certifies of executions and receipts."""

from __future__ import annotations

import json
from typing import Any

from golden.cases import CASES
from golden.interfaces import command, example_execution
from golden.machines import load

# Words for people: what they say is looked at elsewhere, and they may become better.
WORDS = ("assumptions", "diagnostics")
# What documents say besides since the files were made.
ADDED = ("guarantee",)
# The same, of documents about one named adversary.
ADDED_AGAINST_ONE = ("epsilon_a_priori", "enforced_by")
PAIRWISE = {
    "protocol": "pairwise",
    "parties": 5,
    "edges": [[0, 1, 3.0], [1, 2, 2.0], [2, 3, 4.0], [3, 4, 2.5], [0, 4, 1.5], [1, 3, 2.0]],
    "sigma_own": [0.5, 0.6, 0.7, 0.8, 0.9],
    "responded": [True, True, True, True, False],
    "sensitivity": 2.0,
}
CORRELATED = {
    "protocol": "correlated",
    "parties": 4,
    "covariance": [[4.0, -1.0, -0.5, 0.0], [-1.0, 3.0, -0.5, -1.0], [-0.5, -0.5, 5.0, -1.0], [0.0, -1.0, -1.0, 2.5]],
}
# Of equally bad coalitions the last bits decide which one is named: its size must stay.
NAMED = "worst_coalition"
# (protocol, parties, fraction that leaves, probability to be away, parameters): too many coalitions for all of them.
LARGER: list[tuple[str, int, float, float, dict[str, Any]]] = [
    ("inca", 40, 0.1, 0.05, {"rounds": 5, "sigma_star": 0.8, "sigma_delta": 6.0, "out_degree": 2}),
    (
        "inca",
        24,
        0.1,
        0.0,
        {
            "rounds": 4,
            "sigma_star": 0.8,
            "sigma_delta": 6.0,
            "value_bits": 32,
            "grid": 2.0**-10,
            "largest_value": 9.0,
            "dimension": 4,
        },
    ),
    ("gopa", 30, 0.1, 0.0, {"sigma_star": 0.8, "sigma_delta": 6.0, "partners": 4, "aggregator": 0}),
    ("gopa", 30, 0.1, 0.0, {"sigma_star": 0.8, "sigma_delta": 6.0, "partners": 20, "least_partners": 15}),
    ("cordp-dme", 30, 0.2, 0.0, {"sigma_own": 0.4, "sigma_pair": 5.0, "partners": 10, "aggregator": 3}),
    ("muffliato", 32, 0.0, 0.0, {"sigma": 2.0, "rounds": 5, "schedule": "expander", "momentum": 1.2}),
    (
        "secagg",
        30,
        0.1,
        0.0,
        {"threshold": 20, "minimum": 20, "granularity": 0.01, "sigma": 0.05, "clip": 0.5, "bits": 20, "dimension": 6},
    ),
    (
        "secagg-plus",
        30,
        0.0,
        0.0,
        {
            "degree": 12,
            "threshold": 9,
            "minimum": 20,
            "granularity": 0.01,
            "sigma": 0.05,
            "clip": 0.5,
            "bits": 20,
            "dimension": 6,
        },
    ),
]


def certificate_cases() -> list[dict[str, Any]]:
    """Executions of the golden machines by name, and one-shot ones in full; with the arguments of ``certify``."""
    found: list[dict[str, Any]] = []
    for case in CASES:
        of = {"machines": [case.protocol, case.name]}
        found.append(of | {"arguments": ["--corrupt", case.corrupt, "--json", *case.options]})
        found.append(of | {"arguments": ["--colluding", str(case.colluding), "--json"]})
    of = {"machines": ["inca", "dropouts and lost messages"]}
    found.append(
        of
        | {"arguments": ["--corrupt", "1", "--observe-fraction", "0.4", "--seed", "3", "--matrix", "--delta", "1e-4", "--json"]}
    )
    for document in (PAIRWISE, CORRELATED):
        ways: list[list[str]] = [["--corrupt", "1"], ["--corrupt", ""], ["--colluding", "2"], []]
        found += [{"execution": document, "arguments": [*against, "--json"]} for against in ways]
    return found


def larger_cases() -> list[dict[str, Any]]:
    """Receipts of more parties."""
    found: list[dict[str, Any]] = []
    for protocol, parties, leaving, away, parameters in LARGER:
        receipt = example_execution(protocol, parties, 1, permanent=leaving, temporary=away, **parameters).to_json()
        # As a receipt has it: how it was meant to be certified, and what this program does not know.
        receipt |= {"certify": {"colluding": 3, "delta": 1e-5, "epsilon": 1.0}, "result": {"mean": [0.5]}}
        found += [{"execution": receipt, "arguments": [*against, "--json"]} for against in ([], ["--corrupt", "1,4,7,8"])]
    return found


def execution_of(case: dict[str, Any]) -> dict[str, Any]:
    """The execution file of a case."""
    if "execution" in case:
        given: dict[str, Any] = case["execution"]
        return given
    protocol, name = case["machines"]
    [found] = [each["execution"] for each in load("machines")[protocol] if each["name"] == name]
    return dict(found)


def certified(case: dict[str, Any]) -> dict[str, Any]:
    """Exit code, and the command's document but for the words in it."""
    code, text, _ = command(["verify", "receipt", "execution.json", *case["arguments"]], {"execution.json": execution_of(case)})
    document = _without_words(json.loads(text)) if text else None
    if code and document is not None:
        # Since then an error is a document, too: one that says no more than that.
        assert document.keys() == {"error", "exit"}, document
        assert document["exit"] == code, document
        document = None
    if document and "certificates" not in document:
        document = {key: item for key, item in document.items() if key not in ADDED_AGAINST_ONE}
    return {"code": code, "document": document}


def _without_words(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_words(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: None if key in WORDS else _without_words(item) for key, item in value.items() if key not in ADDED}
    return kept | ({NAMED: len(value[NAMED])} if NAMED in value else {})
