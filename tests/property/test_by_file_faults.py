"""Whatever happens to contributions on their way, the result is that of whole files of this study, or there is none."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.node.net import Identity, Purpose
from quietmean.planning.plan import Plan
from quietmean.randomness import SecureNoise, Seed
from quietmean.studies.agreement.contribution import AnotherStudyError, Contribution
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.party.by_file import SharingContributor, combine
from support.meeting import Meeting, meet

PARTIES = 10
Change = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Folder:
    """All parties' contributions, in their order, and where a test may write."""

    meeting: Meeting
    sealed: Sealed
    plan: Plan
    files: list[Path]
    identities: list[Identity]
    place: Path

    def load(self, party: int) -> Contribution:
        return Contribution.load(self.files[party], self.sealed, self.plan)

    def write(self, contents: list[bytes]) -> list[Path]:
        paths = [self.place / f"{number}.contribution" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        return paths


def make(place: Path, protocol: str) -> Folder:
    names = [f"site {number:02d}" for number in range(PARTIES)]
    tables: dict[str, Any] = {
        "study": {"name": "ages", "protocol": protocol, "dropouts": 0.3, "colluding": 1},
        "column": [{"name": "age", "low": 0, "high": 100}],
    }
    meeting = meet(place, names, tables)
    sealed = meeting.seal()
    plan = sealed.study.plan(PARTIES)
    encoded = sealed.study.workload.encode(np.full((20, 1), 50.0), step=plan.value_step)
    files = []
    for entry in sealed.entries:
        contributor = SharingContributor(
            sealed, plan, meeting.identities[entry.name], meeting.keys[entry.name], place / "register"
        )
        path = place / f"{entry.name}.contribution"
        path.write_bytes(contributor.contribute(encoded).to_file())
        files.append(path)
    (place / "changed").mkdir()
    return Folder(meeting, sealed, plan, files, [meeting.identities[entry.name] for entry in sealed.entries], place / "changed")


@pytest.fixture(scope="module", params=["cordp-dme", "local-dp"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return make(tmp_path_factory.mktemp("one"), "cordp-dme")


@pytest.mark.sampled(1)
@given(st.data())
def test_broken_files_are_left_out_and_named(folder: Folder, data: st.DataObject) -> None:
    """Cut, with bytes flipped, with parts of each other in them, twice, empty, in any order and under any name."""
    whole = [path.read_bytes() for path in folder.files]
    contents = list(whole)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(contents) - 1))
        content = contents[place]
        match data.draw(st.sampled_from(["cut", "flip", "splice", "twice", "append"])):
            case "cut":
                contents[place] = content[: data.draw(st.integers(0, max(len(content) - 2, 0)))]
            case "flip" if content:
                at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
                contents[place] = content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]
            case "splice":
                other, at = whole[data.draw(st.integers(0, PARTIES - 1))], data.draw(st.integers(1, len(whole[0]) - 2))
                contents[place] = content[:at] + other[at:]
            case "twice":
                contents.append(content)
            case _:
                contents[place] = content + data.draw(st.binary(min_size=1, max_size=9))
    order = data.draw(st.permutations(range(len(contents))))
    paths = folder.write([contents[place] for place in order])
    texts = list(map(str, paths))
    try:
        found = combine(folder.sealed, folder.plan, paths)
    except ProtocolFailure as error:
        # Too few are whole: every broken file is named with its reason, and who is missing.
        said = str(error)
    else:
        said = ""
    if said:
        assert f"planned for {folder.plan.target.responding}. Wait for site" in said
        return
    # Every file is either in the result, whole and as it was signed, or named with a sentence.
    names = [entry.name for entry in folder.sealed.entries]
    assert set(found.digests.items()) <= {(names[party], folder.load(party).digest) for party in range(PARTIES)}
    assert len(found.digests) + len(found.twice) + len(found.left_out) == len(paths)
    assert {file for file, _ in found.left_out} | set(found.twice) <= set(texts)
    assert all(reason and "\n" not in reason for _, reason in found.left_out)
    assert found.outcome.parties_counted == len(found.digests) >= folder.plan.target.responding
    assert list(found.missing) == found.outcome.missing(names)


@given(st.data())
def test_no_change_of_what_was_signed_is_taken(one: Folder, data: st.DataObject) -> None:
    """Fields exchanged between two parties' files, signatures moved: nobody else's numbers count under a name."""
    first, second = (one.load(party) for party in data.draw(st.permutations(range(PARTIES)))[:2])
    document, other = json.loads(first.signed.body), json.loads(second.signed.body)
    names = data.draw(st.lists(st.sampled_from(sorted(document)), min_size=1, unique=True))
    changed = document | {name: other[name] for name in names}
    signature = data.draw(st.sampled_from([first.signed.signature, second.signed.signature]))
    (path,) = one.write([Signed(Purpose.CONTRIBUTION, canonical_json(changed), signature).to_file()])
    try:
        taken = Contribution.load(path, one.sealed, one.plan)
    except InputError:
        return
    assert taken.signed in (first.signed, second.signed)


def lie(folder: Folder, change: Change) -> Path:
    """A contribution that its own party changed, and signed anew."""
    document = json.loads(folder.load(0).signed.body)
    change(document)
    (path,) = folder.write([Signed.sign(Purpose.CONTRIBUTION, document, folder.identities[0]).to_file()])
    return path


def vector(*values: float) -> str:
    return base64.b64encode(np.array(values, dtype="<f8").tobytes()).decode()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(vector=vector(*[float("nan")] * 5)), "not of this study"),
        (lambda document: document.update(vector=vector(*[0.1] * 5)), "not of this study"),
        (lambda document: document.update(vector=vector(1.0, 2.0)), "not of this study"),
        (lambda document: document.update(vector=""), "not of this study"),
        (lambda document: document.update(vector="AAAA"), "not of this study"),
        (lambda document: document.update(vector="!"), "not of this study"),
        (lambda document: document.update(weight=-1.0), "a weight is a number of at least 0"),
        (lambda document: document.update(weight=0.5), "not a whole number"),
        (lambda document: document.update(extra=1), "cannot be read"),
        (lambda document: document.pop("weight"), "cannot be read"),
        (lambda document: document.update(party="somebody"), "is not a party of this study"),
    ],
)
def test_what_a_party_of_the_study_may_sign(one: Folder, change: Change, words: str) -> None:
    found = combine(one.sealed, one.plan, [lie(one, change), *one.files[1:]])
    assert found.missing == (one.sealed.entries[0].name,)
    ((_, reason),) = found.left_out
    assert words in reason


@pytest.mark.parametrize("name", ["session", "plan"])
def test_nothing_is_added_up_across_sessions_and_plans(one: Folder, name: str) -> None:
    path = lie(one, lambda document: document.update({name: "0" * 64}))
    with pytest.raises(AnotherStudyError):
        Contribution.load(path, one.sealed, one.plan)
    with pytest.raises(InputError, match="contributions of one study only"):
        combine(one.sealed, one.plan, [*one.files[1:], path])


def test_a_path_without_a_file_is_a_mistake(one: Folder) -> None:
    with pytest.raises(InputError, match=r"missing does not exist\. Name the contributions"):
        combine(one.sealed, one.plan, [*one.files, one.place / "missing"])


def test_own_noise_is_bound_to_the_data(one: Folder, tmp_path: Path) -> None:
    """Two contributions of a copied store do not tell the difference of the data to the last digit."""
    meeting = meet(tmp_path, [f"site {number:02d}" for number in range(4)], one.sealed.study.tables())
    sealed = meeting.seal()
    plan, workload = sealed.study.plan(4), sealed.study.workload
    keys = meeting.keys["site 00"].bind(sealed.digest).with_seed()
    copy, seen, values = keys.path.read_bytes(), [], []
    for number, age in enumerate((50.0, 51.0)):
        keys.path.write_bytes(copy)
        encoded = workload.encode(np.full((20, 1), age), step=plan.value_step)
        contributor = SharingContributor(sealed, plan, meeting.identities["site 00"], keys, tmp_path / f"register {number}")
        seen.append(Contribution.verified(contributor.contribute(encoded), sealed, plan).release.vector)
        values.append(encoded.vector)
    assert (np.abs((seen[1] - seen[0]) - (values[1] - values[0])) > plan.grid).any()


def test_files_that_are_missing_count_as_seen(one: Folder) -> None:
    """One colluder cannot be the two whose files are missing: without their files it would see less."""
    outcome = combine(one.sealed, one.plan, one.files[2:]).outcome
    everybody = combine(one.sealed, one.plan, one.files).outcome
    fewer = outcome.execution.in_result.privacy(one.plan.target.delta).coalitions(1).max_epsilon
    assert fewer < outcome.epsilon == everybody.epsilon <= outcome.epsilon_a_priori


def test_pairs_draw_the_same_noise_of_this_session_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise source that each end hands to its machine: equal at both ends, another one where the study is sealed again."""
    tables = {"study": {"protocol": "cordp-dme", "dropouts": 0.3}, "column": [{"name": "age", "low": 0, "high": 100}]}
    meeting = meet(tmp_path, [f"site {number:02d}" for number in range(4)], tables)
    drawn: list[Any] = []

    class Seen(SecureNoise):
        def __init__(self, seed: Seed, shared_seed: Callable[[int], Seed]) -> None:
            super().__init__(seed, shared_seed)
            drawn.append(shared_seed)

    monkeypatch.setattr("quietmean.studies.party.by_file.SecureNoise", Seen)
    plain = {name: keys.path.read_bytes() for name, keys in meeting.keys.items()}
    for number in range(2):
        sealed = meeting.seal()
        plan = sealed.study.plan(4)
        for entry in sealed.entries[:2]:
            keys = meeting.keys[entry.name]
            keys.path.write_bytes(plain[entry.name])
            contributor = SharingContributor(sealed, plan, meeting.identities[entry.name], keys, tmp_path / f"register {number}")
            contributor.contribute(sealed.study.workload.encode(np.full((20, 1), 50.0), step=plan.value_step))
    first, second, first_again, _ = drawn
    assert first(1) == second(0)
    assert first(1) != first(2)
    assert first(1) != first_again(1)
