"""Whatever happens to a party's files and processes, nothing but one contribution of it ever leaves, and it is charged before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.studies.agreement.study_keys import GivenContribution, StudyKeys, write_private
from quietmean.studies.party.by_file import SharingContributor
from support.effort import examples
from support.meeting import meet

STUDY: dict[str, Any] = {
    "study": {"colluding": 1, "dropouts": 0.25, "protocol": "cordp-dme"},
    "column": [{"name": "age", "low": 0, "high": 100}],
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("give"), st.sampled_from([40.0, 60.0]), st.sampled_from(["", "charge", "register", "keys"])),
        st.tuples(st.sampled_from(["copy", "restore", "delete", "lose register"])),
    ),
    max_size=12,
)


class _CrashError(Exception):
    pass


class Party:
    """One party with a ledger that remembers one content, as :meth:`quietmean.ledger.Ledger.bind`; ``left``: what came out."""

    def __init__(self, folder: Path) -> None:
        meeting = meet(folder, ("a", "b", "c", "d"), STUDY)
        self.sealed = meeting.seal()
        self.plan = self.sealed.study.plan(4)
        self.identity, self.keys = meeting.identities["a"], meeting.keys["a"]
        self.register = folder / "register"
        self.copy: bytes | None = None
        self.charged: set[bytes] = set()
        self.left: set[str] = set()
        self.refused = 0

    def give(self, age: float, crash: str, checks: bool) -> None:
        contributor = _Contributor(self.sealed, self.plan, self.identity, self.keys, self.register)
        contributor.__dict__["crash"] = crash
        encoded = self.sealed.study.workload.encode(np.full((9, 1), age), step=self.plan.value_step)

        def charge(content: bytes) -> None:
            if checks and self.charged - {content}:
                raise InputError("the ledger knows another one")
            self.charged.add(content)
            if crash == "charge":
                raise _CrashError

        try:
            self.left.add(contributor.contribute(encoded, charge).digest)
        except _CrashError:
            pass
        except InputError:
            self.refused += 1

    def suffer(self, what: str) -> None:
        path = self.keys.path
        if what == "copy" and path.exists():
            self.copy = path.read_bytes()
        elif what == "restore" and self.copy is not None:
            write_private(path, self.copy)
        elif what == "delete":
            path.unlink(missing_ok=True)
        elif what == "lose register":
            for each in self.register.glob("*"):
                each.unlink()


class _Contributor(SharingContributor):
    def _register(self, study: str, content: bytes, name: str) -> None:
        super()._register(study, content, name)
        if self.__dict__["crash"] == "register":
            raise _CrashError

    def _spend(self, keys: StudyKeys, given: GivenContribution) -> None:
        super()._spend(keys, given)
        if self.__dict__["crash"] == "keys":
            raise _CrashError


@given(steps=STEPS)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_contribution_whatever_happens(steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory) -> None:
    party = Party(tmp_path_factory.mktemp("party"))
    for kind, *rest in steps:
        if kind == "give":
            party.give(rest[0], rest[1], True)
        else:
            party.suffer(kind)
    assert len(party.left) <= 1
    assert {bytes.fromhex(digest) for digest in party.left} <= party.charged
    assert len(party.charged) <= 1


def test_the_model_finds_a_build_without_the_checks(tmp_path: Path) -> None:
    party = Party(tmp_path)
    party.suffer("copy")
    party.give(40.0, "", False)
    party.suffer("restore")
    party.suffer("lose register")
    party.give(60.0, "", False)
    assert len(party.left) == 2
