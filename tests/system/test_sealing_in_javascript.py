"""A browser's contributions: made by JavaScript, they are those that members' own software makes, opened and counted alike."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quietmean.core.statement import LinearRelation, StatedValue
from quietmean.node.mailbox import mailbox_bytes, open_with
from quietmean.node.net import Identity, Purpose
from quietmean.node.net.identity import format_public_key
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import open_excerpt, read_whole
from quietmean.protocols.committee.design import encode
from quietmean.randomness import BitStream, Seed
from quietmean.statistics.program import VectorProgram
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.program import EncodingProgram
from quietmean.studies.agreement.voucher import Registrar, Voucher
from support.committee_run import CommitteeRun
from support.committee_study import CommitteeStudy
from support.committee_world import CommitteeWorld, identity, mailbox
from support.form_studies import INVITATION, RandomStudy, differences, shown_voucher, study_of, voucher_for
from support.javascript import answers_of, asked, mutated
from support.small_order import forged, keys_of_small_order

VECTORS = json.loads((Path(__file__).parents[1] / "data/sealing_vectors.json").read_text())
STUDIES, BATCHES = 500, 20
TABLE = StatedValue(np.zeros(4), np.ones(4), (LinearRelation(np.arange(1, 4), np.ones(3, dtype=np.int64), 0.0, 2.0),))


def sha256(text: str) -> str:
    return hashlib.sha256(bytes.fromhex(text)).hexdigest()


# --- what it is made of ---


def test_hashes_are_those_of_the_standard_for_every_length_of_a_block() -> None:
    contents = [
        bytes(range(256))[:length] for length in (*range(0, 5), *range(70, 74), *range(134, 138), 166, 167, 168, 169, 256)
    ]
    for content, found in zip(contents, answers_of([{"call": "sha3", "content": each.hex()} for each in contents]), strict=True):
        streams = [stream(content).hexdigest(501) for stream in (hashlib.shake_128, hashlib.shake_256)]
        assert found[:2] == [hashlib.sha3_256(content).hexdigest(), hashlib.sha3_512(content).hexdigest()]
        assert [found[2] + found[3], found[4] + found[5]] == streams


def test_encapsulation_is_that_of_public_vectors() -> None:
    vectors = VECTORS["ml_kem_768"]
    keys = [base64.b64decode(vector["ek"]).hex() for vector in vectors]
    questions = [{"call": "encapsulate", "key": key, "message": vector["m"]} for key, vector in zip(keys, vectors, strict=True)]
    for (secret, ciphertext), vector in zip(answers_of(questions), vectors, strict=True):
        assert (secret, sha256(ciphertext)) == (vector["K"], vector["c"]), vector["of"]


def test_a_key_that_is_not_reduced_or_of_another_length_is_refused() -> None:
    key, random = base64.b64decode(VECTORS["ml_kem_768"][0]["ek"]), np.random.default_rng(3329)
    wrong = [key[:-1], key + b"\0", key[:-384]]
    for place in random.permutation(768)[:20].tolist():
        number = int(random.integers(3329, 4096))
        at, changed = place // 2 * 3, bytearray(key)
        low, middle, high = key[at : at + 3]
        changed[at : at + 3] = (
            [number & 255, middle & 240 | number >> 8, high]
            if place % 2 == 0
            else [low, middle & 15 | (number & 15) << 4, number >> 4]
        )
        wrong.append(bytes(changed))
    found = asked([{"call": "encapsulate", "key": each.hex(), "message": "00" * 32} for each in wrong])
    assert all("mailbox key is not valid" in each["error"] for each in found)


def test_the_hybrid_is_that_of_public_vectors() -> None:
    questions = []
    for vector in VECTORS["x_wing"]:
        expanded = hashlib.shake_256(bytes.fromhex(vector["seed"])).digest(96)
        pair = MLKEM768PrivateKey.from_seed_bytes(expanded[:64]), X25519PrivateKey.from_private_bytes(expanded[64:])
        questions.append({"call": "xwing", "key": mailbox_bytes(pair).hex(), "random": vector["eseed"]})
    for (secret, ciphertext), vector in zip(answers_of(questions), VECTORS["x_wing"], strict=True):
        assert (secret, sha256(ciphertext)) == (vector["ss"], vector["ct"])


def test_what_it_seals_is_opened_by_members_with_this_info_and_no_other() -> None:
    random, questions = np.random.default_rng(200), []
    for number in range(200):
        contents = {"info": random.bytes(int(random.integers(0, 300))).hex(), "content": random.bytes(number * 3).hex()}
        questions.append({"call": "seal", "key": mailbox_bytes(mailbox(number % 5)).hex(), **contents})
    sealed = [bytes.fromhex(each) for each in answers_of(questions)]
    for number, (question, ciphertext) in enumerate(zip(questions, sealed, strict=True)):
        info = bytes.fromhex(question["info"])
        assert open_with(mailbox(number % 5), info, ciphertext).hex() == question["content"]
        for other, label in ((number % 5, info + b"\0"), ((number + 1) % 5, info)):
            with pytest.raises(ValueError, match="not sealed"):
                open_with(mailbox(other), label, ciphertext)
    assert len({each[:1120] for each in sealed}) == len(sealed)


def test_values_are_packed_as_members_pack_them() -> None:
    whole = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53 - 1]
    texts = ["", "é", "a" * 31, "a" * 32, "€" * 80, "a" * 255, "a" * 256, "a" * 65536]
    binaries = [bytes(size) for size in (0, 31, 32, 255, 256, 65535, 65536)]
    doubles = [1.0, 0.0, -0.0, 0.1, 1e308, -2.5]
    lists = [[], list(range(15)), list(range(16)), ["a", [b"b", [1.0]]]]

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(each) for each in value]
        return {"bytes": value.hex()} if isinstance(value, bytes) else {"double": value} if isinstance(value, float) else value

    values: list[Any] = [*whole, *texts, *binaries, *doubles, *lists]
    # JSON has no minus zero.
    values.remove(-0.0)
    for value, found in zip(values, answers_of([{"call": "pack", "value": shown(each)} for each in values]), strict=True):
        assert found == msgspec.msgpack.encode(value).hex()
    refused = asked([{"call": "pack", "value": each} for each in (0.5, -1, 2**53, True)])
    assert all("no such value" in each["error"] for each in refused)


def test_seeds_and_their_streams_are_those_of_members() -> None:
    labels: list[list[str | int]] = [[], ["share", 0], ["share", 11], ["1"], [1], ["é", "a", 255], ["committee shares", "value"]]
    questions = [{"call": "draw", "secret": "07" * 32, "labels": each, "count": 33} for each in labels]
    for given, (seed, halves, units) in zip(labels, answers_of(questions), strict=True):
        derived = Seed(b"\7" * 32).derive(*given)
        assert seed == derived.secret.hex()
        words = BitStream(derived).words(33)
        assert halves == np.column_stack([words >> np.uint64(32), words & np.uint64(2**32 - 1)]).ravel().tolist()
        assert units == BitStream(derived).uniform(33).tolist()


def test_signatures_are_those_of_members_and_no_key_lets_anybody_sign(tmp_path: Path) -> None:
    own, content = Identity.generate(), b"anything"
    right = own.sign(Purpose.LINK, content)
    question = {"call": "sign", "secret": own.private_key.private_bytes_raw().hex(), "content": content.hex()}
    assert answers_of([question]) == [right.hex()]
    good = {"call": "check", "line": own.public_key, "content": content.hex(), "signature": right.hex()}
    # The last digit of 32 bytes has bits that no byte uses.
    respelt = own.public_key[:-2] + chr(ord(own.public_key[-2]) + 1) + "="
    changes = [{"line": line} for line in (respelt, own.public_key[:-1], own.public_key[8:], "", Identity.generate().public_key)]
    changes += [
        {"content": b"another".hex()},
        {"signature": right[:-1].hex()},
        {"signature": own.sign(Purpose.FILE, content).hex()},
    ]
    forgeries = {key: forged(key, Purpose.LINK.label + content) for key in keys_of_small_order()}
    small = [
        good | {"line": format_public_key(key), "signature": made.hex()} for key, made in forgeries.items() if made is not None
    ]
    assert answers_of([good, *(good | change for change in changes), *small]) == [True] + [False] * (len(changes) + len(small))
    # Browsers take them.
    careless = mutated(tmp_path / "form", "signatures", " || !isSafe(raw)", "")
    assert sum(answers_of(small, careless)) >= 8


# --- whole contributions ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_files_of_random_studies_are_those_of_members_software(batch: int) -> None:
    """500 studies in all: shares, masks, headers and signatures from the same seeds, byte for byte."""
    size = STUDIES // BATCHES
    studies = [RandomStudy.number(number) for number in range(batch * size, (batch + 1) * size)]
    different, compared = differences(studies, asked([study.question for study in studies]))
    assert different == []
    assert compared > size * 3 // 4


MUTANTS = {
    "order of shares": ("contribution", "littleEndian(share)", "littleEndian(share.reverse())"),
    "share of another": ("contribution", "shares[member];", "shares[(member + 1) % members.length];"),
    "masks of another": ("contribution", "littleEndian(masks[member])", "littleEndian(masks[0])"),
    "who gets seeds": ("contribution", "firstSeeded(dealer, members.length)", "firstSeeded(session, members.length)"),
    "no number of a relation": ("sharing", "[...moved, ...sums]", "[...moved, ...sums.map(() => ranges.at(-1)[0])]"),
    "last weight": ("sharing", "span - (weights.at(-1) - 1)", "weights.at(-1)"),
    "product masks that are not 0": ("sharing", "times(mask, away(member))", "mask"),
    "degree of masks": ("sharing", "2 * threshold - 2", "2 * threshold - 3"),
    "masks from the seed": ("contribution", ", random(SEED_BYTES))", ", (random(SEED_BYTES), seed))"),
    "domain of shares": ("contribution", '"committee shares"', '"committee share"'),
    "domain of masks": ("sharing", '"committee product masks"', '"committee masks"'),
    "domain of signatures": ("signatures", "quietmean ${purpose} 1\\0", "quietmean ${purpose} 1"),
    "type of a label": ("streams", '"number" ? "i" : "s"', '"number" ? "s" : "s"'),
    "weight that is no double": ("contribution", "new Double(program.weight)", "Math.ceil(program.weight)"),
    "short info": ("hpke", "utf8(label), context);", "utf8(label));"),
    "info without its member": ("contribution", "[...front, members[member]]", "[...front]"),
    "label of the hybrid": ("hpke", "ephemeral, point, XWING_LABEL", "ephemeral, point"),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_that_mutants_differ(mutant: str, tmp_path: Path) -> None:
    studies = [RandomStudy.number(number) for number in range(20)]
    folder = mutated(tmp_path / "form", *MUTANTS[mutant])
    different, _ = differences(studies, asked([study.question for study in studies], folder))
    assert different


def questions_of(world: CommitteeWorld, numbers: list[int]) -> list[dict[str, Any]]:
    """To contribute as these contributors with vouchers do, with fresh randomness."""
    questions = []
    for number in numbers:
        seed, name = Seed.public("contribution", number), f"contributor {number}"
        vector = encode(world.parameters, world.value(number), 1.0, seed, world.session.layout_of(False, 1.0, b""))
        voucher = shown_voucher(name, voucher_for(name))
        question = {"call": "contribute", "study": study_of(world.session), "vector": vector.tolist(), "voucher": voucher}
        questions.append(question | {"seed": seed.secret.hex()})
    return questions


@pytest.mark.parametrize("verified", [True, False])
def test_members_count_files_of_both_languages_and_their_sum_is_right(verified: bool) -> None:
    world = CommitteeWorld(Committee(5, verified=verified), contributors=3, vouchers=3, statement=TABLE if verified else None)
    files = {number: world.contribution(number) for number in range(3)}
    for number, (raw, digest) in zip((3, 4, 5), answers_of(questions_of(world, [3, 4, 5])), strict=True):
        files[number] = bytes.fromhex(raw)
        assert read_whole(world.session, files[number])[0].digest.hex() == digest
    run = CommitteeRun(world, files).run()
    assert run.counted() == {frozenset(world.contributor(number).public_key for number in files)}
    assert all(not state.left_out and not state.remarks for state in run.states)
    (total,) = {tuple(checked.total) for checked in run.results() if checked is not None}
    assert np.abs(np.array(total) - sum(world.value(number) for number in files)).max() < 12 * world.parameters.sigma


def test_a_seed_makes_one_file_and_a_file_has_randomness_of_its_own(tmp_path: Path) -> None:
    world = CommitteeWorld(Committee(5, verified=True), contributors=2, vouchers=2, statement=TABLE)
    (question,) = questions_of(world, [2])
    other = question | {"seed": "01" * 32}
    first, again, second = asked([question, question, other])
    assert "has served for another file" in again["error"]
    # In another page the same seed: the same shares, and nothing else that is the same.
    (third,) = asked([question])
    files = [bytes.fromhex(found["answer"][0]) for found in (first, second, third)]
    read = [read_whole(world.session, raw) for raw in files]
    parts = [
        [open_excerpt(world.session, header, own, member, world.opener(member)) for member, own in enumerate(excerpts)]
        for header, excerpts in read
    ]
    for one, new, repeated in zip(*parts, strict=True):
        assert np.array_equal(one.values, repeated.values)
        assert not np.array_equal(one.values, new.values)
        assert not set(one.masks.tolist()) & set(new.masks.tolist()) | set(one.masks.tolist()) & set(repeated.masks.tolist())
    ciphertexts = [own[header.size :][:1120] for header, excerpts in read for own in excerpts]
    assert len(set(ciphertexts)) == len(ciphertexts)
    guard = ("contribution", "if (seedsUsed.has(used))", "if (false)")
    assert "answer" in asked([question, question], mutated(tmp_path / "form", *guard))[1]


@pytest.mark.parametrize("vector", [[1, 2, 3], [1, 2, 3, 4, 5], [0.5, 0, 0, 0], [None, 0, 0, 0], ["1", 0, 0, 0]])
def test_what_is_no_vector_of_the_study_is_refused(vector: list[Any]) -> None:
    world = CommitteeWorld(Committee(5, verified=True), contributors=2, vouchers=2, statement=TABLE)
    (question,) = questions_of(world, [2])
    (found,) = asked([question | {"vector": vector}])
    assert "do not give what this study adds up" in found["error"]


COLUMNS: list[dict[str, Any]] = [
    {"name": "pay", "low": 0.0, "high": 9000.0, "missing": "centre"},
    {"name": "woman", "boolean": True},
    {"name": "job", "levels": ["a", "b", "c"]},
]
GAP: list[dict[str, Any]] = [
    {"kind": "group-means", "column": "pay", "by": "woman"},
    {"kind": "crosstab", "row": "woman", "column": "job"},
]


@pytest.mark.parametrize("verified", [True, False])
def test_records_become_the_files_that_a_command_makes_of_them(verified: bool, tmp_path: Path) -> None:
    """From cells over a real study's encoding program to bytes, each language by itself from the same seeds."""
    registrar, random = identity("registrar"), np.random.default_rng(17)
    terms = {"registrar": registrar.public_key, "vouchers": 50, "verified": verified}
    study = CommitteeStudy(
        tmp_path, {"unit": "record", "column": COLUMNS, "statistic": GAP}, terms, tuple(f"m{number}" for number in range(5)), ()
    )
    session = session_of(study.sealed, study.plan)
    session = replace(session, mailboxes=tuple(mailbox_bytes(mailbox(member)) for member in range(5)))
    workload = study.sealed.study.workload
    program, vectors = EncodingProgram.of(workload, study.plan), VectorProgram.of(workload).vectors
    made, questions = [], []
    for number in range(12):
        cells = np.array([random.uniform(-500, 9500), random.integers(2), random.integers(3)])
        cells[random.random(3) < 0.2] = np.nan
        name = f"contributor {number % 5}"
        admission = Voucher.certify(registrar, study.sealed.invitation.digest, identity(name).public_key, None).admission
        value = study.plan.admit(workload.encode(cells[None], step=study.plan.value_step, vectors=vectors).vector, 1.0)
        seed = Seed(random.bytes(32))
        numbers = encode(session.parameters, value.vector, 1.0, seed, session.layout_of(False, 1.0, b""))
        made.append(RandomStudy(session, name, admission, 1.0, numbers, seed.secret, random.bytes(32)))
        question = made[-1].question | {"call": "answer", "cells": [None if np.isnan(cell) else cell for cell in cells.tolist()]}
        question["study"] |= {"program": json.loads(program.content)}
        questions.append({key: value for key, value in question.items() if key != "vector"})
    assert differences(made, asked(questions)) == ([], 12)


def test_a_browser_that_cannot_seal_is_known_before_anything_is_entered() -> None:
    questions = [{"call": "probe", "without": what} for what in ("nothing", "X25519", "Ed25519", "everything", "nothing")]
    assert answers_of(questions) == [True, False, False, False, True]


# --- vouchers ---


WEIGHTS = [None, 1.0, 1.5, 1e16, 1.25e22, 123456.0]


def test_a_voucher_is_read_from_its_file_and_from_a_link() -> None:
    questions, expected = [], []
    for weight in WEIGHTS:
        registrar = Registrar(identity("registrar"), INVITATION, 3)
        made = registrar.make(1, weight)
        ((name, content),) = made.files.items()
        secret, admission = registrar.own(1).private_key.private_bytes_raw(), made.vouchers[name].admission.to_bytes()
        link = base64.urlsafe_b64encode(secret + admission).decode().rstrip("=")
        assert link == made.fragments[name]
        texts = [content.decode(), content.decode().replace("\n", "\r\n"), link, base64.b64encode(secret + admission).decode()]
        questions += [{"call": "readVoucher", "text": text} for text in texts]
        expected += [{"secret": secret.hex(), "admission": admission.hex()}] * len(texts)
    assert answers_of(questions) == expected


def test_a_voucher_is_for_one_study_and_key_and_for_a_weight() -> None:
    study, questions, expected = study_of(CommitteeWorld(Committee(5), contributors=2, vouchers=2).session), [], []
    for weight in WEIGHTS:
        shown = shown_voucher("contributor 2", voucher_for("contributor 2", weight))
        last = "0" if shown["admission"][-1] != "0" else "1"
        own = {"call": "admit", "study": study, "voucher": shown}
        changes: list[dict[str, Any]] = [
            {"study": study | {"invitation": "cd" * 32}},
            {"study": study | {"registrar": Identity.generate().public_key}},
            {"voucher": shown | {"secret": shown_voucher("another", None)["secret"]}},
            {"voucher": shown | {"admission": shown["admission"][:-1] + last}},
            # Where the study's weight is the only bound, the drop checks it.
            {"study": study | {"program": study["program"] | {"weight": 2e22}}},
        ]
        questions += [own, *(own | change for change in changes)]
        expected += [True, False, False, False, False, weight is None]
    assert answers_of(questions) == expected


def test_what_is_no_voucher_is_refused() -> None:
    made = Registrar(identity("registrar"), INVITATION, 3).make(1, None)
    ((_, content),) = made.files.items()
    line = Voucher.certify(identity("registrar"), INVITATION, identity("somebody").public_key, None).signed.to_line()
    texts = ["", "#", "AAAA", "A" * 138, "A" * 140, line, content.decode()[:-60], content.decode().replace("MC4", "MC5")]
    assert all("no whole voucher" in found["error"] for found in asked([{"call": "readVoucher", "text": text} for text in texts]))
