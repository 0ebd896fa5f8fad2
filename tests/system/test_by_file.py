"""Studies by file: one contribution a party, faults in files, the certificate when some are missing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.node.net import Purpose
from quietmean.planning.plan import Plan
from quietmean.protocols import configure
from quietmean.protocols.execution import Execution
from quietmean.statistics import Encoded
from quietmean.studies.agreement.contribution import Contribution
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.outcome.feasible import require_by_file
from quietmean.studies.party.by_file import SharingContributor, charge_id, combine
from support.meeting import Meeting, meet

PARTIES = tuple(f"site {number:02d}" for number in range(20))
STUDY: dict[str, Any] = {
    "study": {"name": "ages", "colluding": 2, "dropouts": 0.1, "protocol": "cordp-dme"},
    "column": [{"name": "age", "low": 0, "high": 100}],
}


class Site:
    """A meeting whose parties contribute: ``age``, by default 50 for each of 100 records."""

    def __init__(self, folder: Path, tables: dict[str, Any] = STUDY, names: tuple[str, ...] = PARTIES) -> None:
        self.folder, self.meeting = folder, meet(folder, names, tables)
        self.sealed: Sealed = self.meeting.seal()
        self.plan: Plan = self.sealed.study.plan(len(names))

    def contributor(self, name: str) -> SharingContributor:
        meeting: Meeting = self.meeting
        return SharingContributor(self.sealed, self.plan, meeting.identities[name], meeting.keys[name])

    def encoded(self, age: float = 50.0) -> Encoded:
        records = np.full((100, 1), age)
        return self.sealed.study.workload.encode(records, step=self.plan.value_step)

    def write(self, name: str, age: float = 50.0) -> Path:
        path = self.folder / f"{name}.contribution"
        path.write_bytes(self.contributor(name).contribute(self.encoded(age)).to_file())
        return path


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_eighteen_of_twenty(site: Site) -> None:
    paths = {name: site.write(name) for name in PARTIES}
    used = PARTIES[2:]
    found = combine(site.sealed, site.plan, [paths[name] for name in used])
    everybody = combine(site.sealed, site.plan, list(paths.values()))
    assert set(found.missing) == {"site 00", "site 01"}
    assert found.headline.startswith("18 of 20 parties are in this result; NOT in it: ")
    assert everybody.headline == "20 of 20 parties are in this result"
    assert found.outcome.parties_counted == 18
    result, full = found.outcome.to_json(), everybody.outcome.to_json()
    value, error = result["estimate"], result["standard_error"]
    assert abs(value - 50) < 6 * error
    # As the design says: (v + (n - u) b) / u per coordinate of the sum, here of 1800 records.
    own, pair = site.plan.protocol.sigma_own**2, site.plan.protocol.sigma_pair**2  # type: ignore[attr-defined]
    assert found.outcome.execution.in_result.contributors().sum() == 18
    assert error / full["standard_error"] == pytest.approx(
        math.sqrt(18 * (own + 2 * pair)) / 1800 / (math.sqrt(20 * own) / 2000), rel=1e-6
    )
    # The privacy does not get better because two files are not here: they may still come.
    assert found.outcome.epsilon == everybody.outcome.epsilon
    assert found.outcome.epsilon <= found.outcome.epsilon_a_priori <= 1.0
    # It would where nobody colludes: that is what counting them as absent gives away. (Two colluders may be those two.)
    alone, counted = (one.privacy(1e-6).coalitions(0) for one in (found.outcome.execution.in_result, found.outcome.execution))
    assert alone.max_epsilon < counted.max_epsilon
    # Anybody can certify the receipt to the same.
    again = Execution.from_json(json.loads(json.dumps(found.outcome.receipt())))
    assert again.privacy(1e-6).coalitions(2).max_epsilon == found.outcome.epsilon
    assert again.left_out == found.outcome.execution.left_out


def test_second_contribution_is_refused(site: Site) -> None:
    name = PARTIES[3]
    before = site.meeting.keys[name].path.read_bytes()
    first = site.write(name).read_bytes()
    # The same data give the same bytes; others nothing.
    assert site.write(name).read_bytes() == first
    with pytest.raises(InputError, match="contributed other data"):
        site.write(name, 51)
    kept = StudyKeys.load(site.meeting.keys[name].path)
    assert kept.exchange is None
    assert kept.seed is None
    # A restored store has the key again, and this site's register still knows.
    site.meeting.keys[name].path.write_bytes(before)
    with pytest.raises(InputError, match="restored or copied"):
        site.write(name, 51)
    site.meeting.keys[name].path.unlink()
    with pytest.raises(InputError, match="are not in"):
        site.write(name)


@pytest.mark.parametrize("crash", ["charge", "_register", "spent"])
def test_a_crash_between_repeats_the_same_bytes(site: Site, crash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = PARTIES[5]
    charged: list[bytes] = []

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if crash == "_register":
            patch.setattr(SharingContributor, crash, dies)
        if crash == "spent":
            patch.setattr(StudyKeys, crash, dies)
        with pytest.raises(KeyboardInterrupt):
            site.contributor(name).contribute(site.encoded(), dies if crash == "charge" else charged.append)
    found = site.contributor(name).contribute(site.encoded(), charged.append)
    assert set(charged) == {bytes.fromhex(found.digest)}


def test_what_happens_to_files(site: Site) -> None:
    paths = [site.write(name) for name in PARTIES]
    whole = paths[0].read_bytes()
    faults = {
        "truncated": whole[: len(whole) // 2],
        "empty": b"",
        "foreign": b"age\n3\n",
        "tampered": whole.replace(b"site 00", b"site 01"),
        "entry": site.meeting.keys["site 00"].entry.signed.to_file(),
    }
    for name, content in faults.items():
        bad = site.folder / f"{name}.contribution"
        bad.write_bytes(content)
        found = combine(site.sealed, site.plan, [bad, *paths[1:]])
        assert found.missing == ("site 00",), name
        ((file, reason),) = found.left_out
        assert file == str(bad)
        assert "\n" not in reason
    renamed = site.folder / "anything"
    renamed.write_bytes(whole)
    found = combine(site.sealed, site.plan, [renamed, *paths])
    assert found.twice == (str(paths[0]),)
    assert found.missing == ()
    with pytest.raises(ProtocolFailure, match=r"17 of 20 .* planned for 18. Wait for .*site"):
        combine(site.sealed, site.plan, paths[3:])


def test_two_contributions_of_one_party_and_another_session_are_refused(site: Site, tmp_path: Path) -> None:
    paths = [site.write(name) for name in PARTIES]
    own = Contribution.load(paths[0], site.sealed, site.plan)
    other = Contribution.sign(
        site.sealed, site.plan, site.meeting.identities["site 00"], replace(own.release, vector=own.release.vector * 2)
    )
    twice = tmp_path / "twice"
    twice.write_bytes(other.to_file())
    with pytest.raises(InputError, match="two different contributions of site 00"):
        combine(site.sealed, site.plan, [*paths, twice])
    sealed_again = site.meeting.seal()
    with pytest.raises(InputError, match="for the study sealed as"):
        combine(sealed_again, site.plan, paths)
    again = replace(site.contributor("site 01"), sealed=sealed_again)
    with pytest.raises(InputError, match="belong"):
        again.contribute(site.encoded())


def test_a_stranger_is_no_party(site: Site, tmp_path: Path) -> None:
    own = Contribution.load(site.write("site 00"), site.sealed, site.plan)
    stranger = meet(tmp_path / "..", ("stranger", "other")).identities["stranger"]
    body = json.loads(own.signed.body) | {"identity": stranger.public_key}
    with pytest.raises(InputError, match="is not a party"):
        Contribution.verified(Signed.sign(Purpose.CONTRIBUTION, body, stranger), site.sealed, site.plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dropouts": 0.0}, "would be noise"),
        pytest.param({"protocol": "inca"}, "needs more", marks=pytest.mark.slow),
        ({"options": {"partners": 4}}, "needs more"),
    ],
)
def test_what_files_cannot_carry(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    tables = {**STUDY, "study": {**STUDY["study"], **options}}
    site = Site(tmp_path, tables, PARTIES[:10])
    with pytest.raises(InputError, match=words):
        require_by_file(site.plan)


def test_nothing_readable_but_what_is_public(site: Site) -> None:
    path = site.write("site 00", 42.0)
    body = json.loads(json.loads(path.read_text())["body"])
    assert sorted(body) == ["identity", "party", "plan", "session", "vector", "weight"]
    assert len(charge_id(site.sealed, site.meeting.keys["site 00"])) == 64
    value = Contribution.load(path, site.sealed, site.plan).release.vector
    assert not np.allclose(value, site.encoded(42.0).vector)


def test_without_the_check_two_files_cost_more_than_was_promised() -> None:
    """20 parties, 2 colluders, the same pair noise and fresh own noise: dense linear algebra, cordp-dme at epsilon 1."""
    from quietmean.planning.calibrate import calibrate
    from quietmean.protocols import Target

    target = Target(parties=20, epsilon=1.0, delta=1e-6, colluding=2, dropouts=0.1)
    protocol: Any = calibrate(target, configure("cordp-dme")).protocol
    own, pair, honest = protocol.sigma_own**2, protocol.sigma_pair**2, 18
    once = own * np.eye(honest) + pair * (honest * np.eye(honest) - np.ones((honest, honest)))
    shared = once - own * np.eye(honest)
    last = np.concatenate([once, shared[:1]])
    twice = np.concatenate([last, np.append(shared[0], once[0, 0])[:, None]], axis=1)
    promised = math.sqrt(np.linalg.inv(once)[0, 0])
    # The unit is in the second file only.
    leaked = math.sqrt(np.linalg.inv(twice)[honest, honest])
    assert promised <= protocol.a_priori(20, 2, 1.0, 1e-6).mu * (1 + 1e-9)
    # Two releases with noise of their own each would cost sqrt(2) times.
    assert leaked > 1.9 * promised
