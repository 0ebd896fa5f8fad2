"""A reader who types a word of the field into the search of the built site finds the right page at once (make docs-search)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.pages import DOCS

SITE = os.environ.get("QUIETMEAN_SITE", "")
ASKED = Path(__file__).parents[1] / "support" / "site_search.js"
TERMS = {
    "t-test": "analyse/statistics",
    "cox": "models/estimators",
    "DPIA": "answer/officer",
    "proxy": "take-part/connect",
    "GDPR": "answer/officer",
    "median": "analyse/statistics",
    "power": "analyse/precision",
    "OMOP": "analyse/data",
    "ethics board": "answer/officer",
    "firewall": "take-part/connect",
    "regression": "models/estimators",
    "Kaplan-Meier": "analyse/statistics",
    "dropout": "analyse/precision",
    "poisoning": "trust/liars",
    "sample size": "analyse/precision",
    "confidence interval": "analyse/results",
    "privacy budget": "answer/budget",
    "composition": "mathematics/accounting",
    "RStudio": "analyse/r",
    "pandas": "analyse/python",
    "notebook": "analyse/python",
    "PyTorch": "models/pytorch",
    "Flower": "models/flower",
    "scikit-learn": "models/estimators",
    "Docker": "take-part/service",
    "systemd": "take-part/service",
    "relay": "take-part/connect",
    "backup": "take-part/service",
    "revoke a key": "take-part/invitation",
    "survey": "take-part/committee",
    "Excel": "analyse/data",
    "Stata": "analyse/data",
    "SPSS": "analyse/data",
    "missing values": "analyse/data",
    "weights": "analyse/statistics",
    "clustering": "models/estimators",
    "federated averaging": "models/pytorch",
    "secure aggregation": "proofs/secagg",
    "local DP": "proofs/baselines",
    "membership inference": "research/attack",
    "meta-analysis": "analyse/statistics",
}
FIRST = 3


def found(site: Path, terms: list[str]) -> dict[str, list[str]]:
    """Pages for each term, the best first, as the site's own scripts rank them."""
    node = shutil.which("node")
    assert node, "node is not here: apt-get install nodejs"
    done = subprocess.run([node, str(ASKED), str(site)], input=json.dumps(terms), capture_output=True, text=True, check=True)
    return dict(zip(terms, json.loads(done.stdout), strict=True))


def test_every_term_has_a_page() -> None:
    assert len(TERMS) >= 40
    assert all((DOCS / f"{page}.md").exists() for page in TERMS.values())


@pytest.mark.slow
@pytest.mark.skipif(not SITE, reason="make docs-search builds the site and names it in QUIETMEAN_SITE")
def test_the_right_page_is_among_the_first_three() -> None:
    answers = found(Path(SITE), [*TERMS, "zebrafish"])
    assert answers.pop("zebrafish") == []
    assert {term: pages for term, pages in answers.items() if TERMS[term] not in pages[:FIRST]} == {}
