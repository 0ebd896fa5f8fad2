"""What parties can agree on, for tests that hold for both: a study of statistics, and a session of many means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import Contract
from quietmean.studies.party.session_contract import SessionContract, contract_for
from support.site_policy import toml

# A row for each number, and a program that does nothing with them.
ROWS = "age\n" + "\n".join(map(str, range(20, 60)))
PROGRAM = """
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    rounds.mean(np.full(rounds.contract.study.dimension, 0.1))
"""


@dataclass(frozen=True)
class Kind:
    """``tables``: of its file, the one with its ``name`` has what is agreed on in general. ``join``: what join needs besides;
    ``data``: what the ledger calls the data.
    """

    name: str
    tables: Mapping[str, Any]
    join: tuple[str, ...]
    data: str = "wards"

    def __str__(self) -> str:
        return self.name

    def with_fields(self, **fields: Any) -> Kind:
        """The same with these fields in its general table; None: without."""
        table = {**self.tables[self.name], **fields}
        return replace(self, tables={**self.tables, self.name: {name: one for name, one in table.items() if one is not None}})

    @property
    def wider(self) -> Kind:
        """Another one of the same name."""
        if self.name == "session":
            return self.with_fields(clip=2.0)
        (column,) = self.tables["column"]
        return replace(self, tables={**self.tables, "column": [{**column, "high": 120}]})

    def write(self, folder: Path = Path()) -> None:
        """Its file study.toml, whichever it is, and what its join reads."""
        (folder / "study.toml").write_text(toml(self.tables))
        (folder / f"{self.data}.csv").write_text(ROWS)
        (folder / "train.py").write_text(PROGRAM)

    def contract(self, sealed: Sealed, name: str) -> Contract | SessionContract:
        return contract_for(name, sealed)


STUDY = Kind(
    "study",
    {
        "study": {"name": "ages", "epsilon": 5.0, "delta": 1e-6, "colluding": 1, "protocol": "local-dp"},
        "column": [{"name": "age", "low": 0, "high": 100}],
    },
    ("--data", "wards.csv"),
)
SESSION = Kind(
    "session",
    {
        "session": {
            "name": "ages",
            "dimension": 2,
            "rounds": 3,
            "epsilon": 5.0,
            "delta": 1e-6,
            "colluding": 1,
            "protocol": "local-dp",
        }
    },
    ("--program", "train.py", "--account", "wards"),
)
KINDS = (STUDY, SESSION)
