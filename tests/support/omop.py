"""A small database like Eunomia's, in the tables of the OMOP Common Data Model, and the cohort of the page about it."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "analyse" / "data.md"
PERSONS, SEED = 400, 20261126
CELECOXIB, DICLOFENAC, BLEEDING, ULCER = 1118084, 1124300, 192671, 4000609
# Products of a drug, a kind of bleeding, and what is none of these.
PRODUCTS = {CELECOXIB: [CELECOXIB, 44923712], DICLOFENAC: [DICLOFENAC, 40162359]}
KINDS, OTHERS = [BLEEDING, 4274025], [1125315, 8]
Row: TypeAlias = tuple[Any, ...]
TABLES = {
    "person": "person_id INTEGER, gender_concept_id INTEGER, year_of_birth INTEGER",
    "drug_exposure": ("drug_exposure_id INTEGER, person_id INTEGER, drug_concept_id INTEGER, drug_exposure_start_date DATE"),
    "condition_occurrence": (
        "condition_occurrence_id INTEGER, person_id INTEGER, condition_concept_id INTEGER, condition_start_date DATE"
    ),
    "concept_ancestor": "ancestor_concept_id INTEGER, descendant_concept_id INTEGER",
}


def eunomia(seed: int = SEED) -> tuple[dict[str, list[Row]], list[list[Any]]]:
    """The rows of all tables, and the cohort as it is by definition, in no order."""
    rng = random.Random(seed)
    ancestors = [(drug, one) for drug, products in PRODUCTS.items() for one in products] + [(BLEEDING, one) for one in KINDS]
    rows: dict[str, list[Row]] = {"person": [], "drug_exposure": [], "condition_occurrence": [], "concept_ancestor": [*ancestors]}
    cohort: list[list[Any]] = []
    for person in range(1, PERSONS + 1):
        sex, born = rng.choice([8507, 8532, 8521]), rng.randrange(1925, 1990)
        rows["person"].append((person, sex, born))
        days = [dt.date(2010, 1, 1) + dt.timedelta(days=rng.randrange(40)) for _ in range(rng.randrange(4))]
        exposures = [(day, rng.choice([*PRODUCTS[CELECOXIB], *PRODUCTS[DICLOFENAC], *OTHERS])) for day in days]
        drugs = []
        for day, concept in exposures:
            number = len(rows["drug_exposure"]) + 1
            rows["drug_exposure"].append((number, person, concept, day.isoformat()))
            drugs += [(day, number, place) for place, products in enumerate(PRODUCTS.values()) if concept in products]
        later = [dt.date(2010, 1, 1) + dt.timedelta(days=rng.randrange(60)) for _ in range(rng.randrange(3))]
        diagnoses = [(day, rng.choice([*KINDS, ULCER])) for day in later]
        for day, concept in diagnoses:
            rows["condition_occurrence"].append((len(rows["condition_occurrence"]) + 1, person, concept, day.isoformat()))
        if drugs:
            started, _, drug = min(drugs)
            bled = any(concept in KINDS and day >= started for day, concept in diagnoses)
            known = {8532: 0.0, 8507: 1.0}.get(sex, np.nan)
            cohort.append([started.year - born, known, drug, (started - dt.date(2000, 1, 1)).days, bled])
    return rows, cohort


def inserts(rows: dict[str, list[Row]], schema: str = "") -> Iterable[str]:
    for name, some in rows.items():
        yield f"CREATE TABLE {schema}{name} ({TABLES[name]})"
        values = ", ".join("(" + ", ".join(repr(cell) for cell in row) + ")" for row in some)
        yield f"INSERT INTO {schema}{name} VALUES {values}"  # noqa: S608


def query_of_the_page() -> str:
    (query,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(query)


def settings_of_the_page() -> str:
    """What each site says beside its data."""
    (settings,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(settings)


def new_of_the_page() -> str:
    """The command that declares what the query returns, on one line."""
    (command,) = re.findall(r"^    (quietmean study new .*?[^\\])$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(command).replace("\\\n", " ")
