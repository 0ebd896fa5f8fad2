"""Whatever bytes strangers send, each decoder reads them or refuses them with its own error: never another, and at bounded cost.

Every decoder has valid seeds; each is also tried on all files of ``corpus``, which holds what once got past one. In every run a
few hundred mutants, and a minute for each decoder in ``make test-all``. A mutant follows from its seed, its number and the keys
of this run.
"""

from __future__ import annotations

import ast
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.core import codec
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, PeerError
from quietmean.core.file_kinds import kind_of_content, read_json
from quietmean.core.output import json_object
from quietmean.core.toml_files import read_tables
from quietmean.drop import RefusedError, _question
from quietmean.flower import sealing
from quietmean.flower.sealing import SealedHello, read_hello
from quietmean.graphs import Schedule
from quietmean.node import folder
from quietmean.node.monitor.monitor import read_status
from quietmean.node.net import Identity, Roster, wire
from quietmean.node.net.identity import Purpose
from quietmean.node.session.logs import GossipedLogs, PartyLog, decode_log, encode_log
from quietmean.node.tunnel.stream import Attending, Call, Joined, Nonce, Proof, Turned, decode_message, decode_proof
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import ContributionError, excerpt, read_header, read_whole
from quietmean.protocols.committee.lists import read_list, read_segment, record, segment_front
from quietmean.protocols.committee.result import ResultError, read_result
from quietmean.protocols.committee.voting import read_statement
from quietmean.protocols.publishing import ContentError
from quietmean.studies.agreement.any_study import is_study
from quietmean.studies.agreement.contribution import DropLog, DropPlace, DropReceipt
from quietmean.studies.agreement.signed import Signed, read_signed, signed_in
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.party import audit
from support.committee_run import CommitteeRun
from support.committee_world import CommitteeWorld, identity

CORPUS = Path(__file__).with_name("corpus")
SOURCES = Path(codec.__file__).parents[1]
# Bytes with a meaning in MessagePack and JSON: containers, long lengths, extremes of numbers, invalid UTF-8, what is never used.
TELLING = b'\x00\x7f\x80\x8f\x90\x9f\xa0\xc0\xc1\xc4\xc6\xc9\xca\xcb\xcf\xd3\xd9\xdb\xdc\xdd\xde\xdf\xff[{"\\,:]}=#\n'
_SHORT, _LONG = 300, 60.0
# A mutant is read in less than this, seconds.
_AT_MOST = 5.0
SCHEDULE = Schedule.silent(4, 5)
IDENTITY, OTHER = Identity.generate(), Identity.generate()
STUDY = b'[study]\nname = "a"\nepsilon = 1.0\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n'
ENTRIES = f'[[party]]\nname = "a"\naddress = "127.0.0.1:7000"\nkey = "{IDENTITY.public_key}"\n'.encode()
ENTRIES += (
    ENTRIES.replace(b'"a"', b'"b"').replace(b"7000", b"7001").replace(IDENTITY.public_key.encode(), OTHER.public_key.encode())
)


class Given(msgspec.Struct):
    """What is signed in the seeds."""

    identity: str
    weight: float


Read = Callable[[bytes, Path], Any]


@dataclass(frozen=True)
class Decoder:
    """``module``: whose decoding it is, below the package. ``refuses``: the only errors that it may raise."""

    module: str
    read: Read
    refuses: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]


def in_file(read: Callable[[Path], Any]) -> Read:
    def reading(raw: bytes, folder: Path) -> Any:
        path = folder / "given"
        path.write_bytes(raw)
        return read(path)

    return reading


WORLD = CommitteeWorld(Committee(4), vouchers=2)
RUN = CommitteeRun(WORLD, {number: WORLD.contribution(number) for number in range(3)}).run()
RESULTS = (RUN.states[0].result.content,)
LISTS = (RUN.states[0].own_list.content,)
SEGMENT = segment_front(WORLD.session, 0) + b"".join(
    record(excerpt(WORLD.session, WORLD.contribution(number), 0), 1.0) for number in (0, 4)
)
DROP_LOG = DropLog.sign(identity("member 1"), WORLD.session, bytes(range(96)), {OTHER.public_key: "it came too late"}).to_file()
RECEIPT = DropReceipt.sign(IDENTITY, "ab" * 32, OTHER.public_key, DropPlace("cd" * 32, 1, "ef" * 32), 1.0).signed.to_file()
STATEMENTS = tuple(message.content for message in RUN.sent[-3:])


def plain(read: Callable[[bytes], Any]) -> Read:
    return lambda raw, folder: read(raw)


def hello(raw: bytes) -> Any:
    study = SimpleNamespace(keyed_by=Links.X25519)
    agreed: Any = SimpleNamespace(parties=3, study=study, identities=(IDENTITY.public_key,) * 3, digest="ab" * 32)
    return read_hello(agreed, raw)


def frames() -> tuple[bytes, ...]:
    told: list[wire.AnyFrame] = [wire.Hello(1, 2, "ab" * 32), wire.Heartbeat(1, 1, 2), wire.Log(3)]
    told += [wire.Transfer(9, 1, 2, 0.25, 8000, b"12345678", 3), wire.AnswerFrame(13, "no", 3, 0, "why")]
    told += [wire.Start(7, 1, (), b"", b"c" * 32)]
    return tuple(wire.encode_frame(one)[8:] for one in told)


def signed() -> tuple[bytes, ...]:
    made = Signed.sign(Purpose.CONTRIBUTION, {"identity": IDENTITY.public_key, "weight": 2.5}, IDENTITY)
    return (made.to_file(), made.to_line().encode()) if hasattr(made, "to_line") else (made.to_file(),)


LOG = PartyLog((1, 2), ((1, 0),), ((2, 4),), (0, 1), ((1, 2, 3),), (), b"head", ((1, b"d" * 32),))
RELAYED = (Nonce(b"n"), Attending(), Call(b"t" * 16, b"k" * 32), Joined(), Turned("away", True))
PROOF = Proof("answer", b"g" * 32, b"l" * 32, b"k" * 32, "relay", b"t" * 16, b"s" * 64)
MESSAGES = (sealing.AskHello(), sealing.BeginRequest(1, (b"h",)), sealing.Deliver(1, 1, {0: b"f"}, (1,)), sealing.Finish(1))
DECODERS = {
    "frame": Decoder("node/net/wire.py", plain(wire.decode_header), (PeerError,), frames()),
    "log": Decoder("node/session/logs.py", plain(lambda raw: decode_log(raw, 5, 4)), (PeerError,), (encode_log(LOG),)),
    "gossip": Decoder(
        "node/session/logs.py",
        plain(lambda raw: GossipedLogs.decode(raw, SCHEDULE)),
        (PeerError,),
        (GossipedLogs(SCHEDULE).encode(0),),
    ),
    "relay": Decoder("node/tunnel/stream.py", plain(decode_message), (PeerError,), tuple(map(msgspec.msgpack.encode, RELAYED))),
    "proof": Decoder("node/tunnel/stream.py", plain(decode_proof), (PeerError,), (msgspec.msgpack.encode(PROOF),)),
    "folder": Decoder("node/folder/__init__.py", plain(folder._decode), (PeerError,), (msgspec.msgpack.encode([1, b"h", b"p"]),)),
    "request": Decoder(
        "flower/sealing.py", plain(sealing.read_request), (InputError,), tuple(sealing.write(one) for one in MESSAGES)
    ),
    "answer": Decoder(
        "flower/sealing.py",
        plain(sealing.read_answer),
        (InputError,),
        (sealing.write(sealing.ClientAnswer(b"h", 1, {0: b"f"}, True, b"m" * 16, 2.0)),),
    ),
    "hello": Decoder(
        "flower/sealing.py", plain(hello), (InputError,), (msgspec.msgpack.encode(SealedHello(1, b"k" * 32, b"s" * 64)),)
    ),
    "signed": Decoder(
        "studies/agreement/signed.py",
        in_file(lambda path: read_signed(Purpose.CONTRIBUTION, path).decode(Given)),
        (InputError,),
        signed(),
    ),
    "voucher": Decoder(
        "studies/agreement/signed.py",
        in_file(Voucher.of_key),
        (InputError,),
        tuple(Voucher.certify(IDENTITY, "ab" * 32, OTHER.public_key, weight).signed.to_line().encode() for weight in (None, 2.0)),
    ),
    "object": Decoder("core/output.py", plain(json_object), (InputError,), (b'{"origin": {"party": 1}}',)),
    "json": Decoder("core/file_kinds.py", in_file(read_json), (InputError,), (b'{"a": [1, 2.5, null, "b"]}',)),
    "contribution": Decoder(
        "protocols/committee/contribution.py",
        plain(lambda raw: read_header(WORLD.session, raw)),
        (ContributionError,),
        (WORLD.contribution(0), WORLD.contribution(4)),
    ),
    "segment": Decoder(
        "protocols/committee/contribution.py",
        plain(lambda raw: [read_header(WORLD.session, one) for one, _ in read_segment(WORLD.session, BytesIO(raw), 0)]),
        (ContributionError,),
        (SEGMENT,),
    ),
    "whole contribution": Decoder(
        "protocols/committee/contribution.py",
        plain(lambda raw: read_whole(WORLD.session, raw)),
        (ContributionError,),
        (WORLD.contribution(2), WORLD.contribution(3)),
    ),
    "question to a drop": Decoder(
        "drop/__init__.py",
        plain(_question),
        (RefusedError,),
        (b'{"contributor": "ed25519:AA", "signature": "AAAA"}', b'{"contributor": "", "signature": ""}'),
    ),
    "drop's receipt": Decoder("studies/agreement/signed.py", plain(DropReceipt.of_file), (InputError,), (RECEIPT,)),
    "drop's log": Decoder(
        "studies/agreement/signed.py",
        plain(lambda raw: DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, raw), WORLD.session)),
        (InputError,),
        (DROP_LOG,),
    ),
    "check list": Decoder(
        "protocols/committee/lists.py", plain(lambda raw: read_list(WORLD.session, raw)), (ContentError,), LISTS
    ),
    "statement": Decoder("protocols/committee/voting.py", plain(read_statement), (ContentError,), STATEMENTS),
    "sums": Decoder("protocols/committee/result.py", plain(lambda raw: read_result(WORLD.session, raw)), (ResultError,), RESULTS),
    # Of what is not known it says nothing, and raises nothing.
    "kind": Decoder("core/file_kinds.py", plain(kind_of_content), (), (STUDY, ENTRIES, RECEIPT, *signed(), b"a,b\n1,2\n")),
    "toml": Decoder("core/toml_files.py", in_file(lambda path: read_tables(path, "file")), (InputError,), (STUDY,)),
    "study": Decoder(
        "studies/agreement/any_study.py",
        in_file(lambda path: is_study(path.read_bytes()) and StudyTerms.load(path)),
        (InputError,),
        (STUDY,),
    ),
    "roster": Decoder("node/net/identity.py", in_file(Roster.load), (InputError,), (ENTRIES,)),
    "status": Decoder(
        "node/monitor/monitor.py",
        in_file(read_status),
        (InputError,),
        (json.dumps({"format": "quietmean-status-1", "pid": 1}).encode(),),
    ),
    "audit": Decoder(
        "studies/party/audit.py", plain(audit._parsed), (InputError,), (b'{"entry":{"number":1},"signature":"AAAA"}',)
    ),
}
# What this program wrote for itself, or a child process of its own, and nobody else.
OWN = {
    "flower/party.py": "the client's own session",
    "node/local/child.py": "settings that the parent process wrote",
    "studies/agreement/study_keys.py": "a party's own keys",
    "studies/party/member.py": "a member's own file about what does not count",
    "studies/party/member_holdings.py": "a member's own file of the parts that it took",
    "studies/data/isolated.py": "a frame of a child process of this program",
    "studies/data/location.py": "a person's own file beside the data",
    "studies/data/query_grammar.py": "what the parser of DuckDB, in this process, makes of a query",
}


def mutants(seeds: tuple[bytes, ...], seed: int) -> Iterator[bytes]:
    """Seeds cut, spliced, repeated and overwritten, and random bytes, without end."""
    drawn = random.Random(seed)
    while True:
        raw = bytearray(drawn.choice(seeds))
        for _ in range(drawn.randint(0, 6)):
            place = drawn.randint(0, len(raw))
            match drawn.randint(0, 4):
                case 0:
                    raw[place : place + 1] = bytes([drawn.choice(TELLING)])
                case 1:
                    del raw[place : place + drawn.randint(1, 8)]
                case 2:
                    raw[place:place] = raw[: drawn.randint(0, len(raw))] or b"\xc1"
                case 3:
                    raw[place:place] = bytes([drawn.choice(TELLING)]) * drawn.choice((1, 2, 200, 5000))
                case _:
                    raw[place : place + 4] = drawn.randbytes(4)
        yield bytes(raw[:100_000])
        yield drawn.randbytes(drawn.randint(0, 64))


def require_read_or_refused(decoder: Decoder, raw: bytes, folder: Path, what: str) -> None:
    begun = time.monotonic()
    try:
        decoder.read(raw, folder)
    except decoder.refuses:
        pass
    except Exception as error:
        pytest.fail(f"{what}: {type(error).__name__} for {raw[:80]!r}")
    assert time.monotonic() - begun < _AT_MOST, what


@pytest.mark.parametrize("name", list(DECODERS))
def test_each_decoder_reads_its_seeds_and_refuses_the_corpus_as_its_own_error(name: str, tmp_path: Path) -> None:
    decoder = DECODERS[name]
    for seed in decoder.seeds:
        decoder.read(seed, tmp_path)
    files = sorted(CORPUS.iterdir())
    assert files
    for path in files:
        require_read_or_refused(decoder, path.read_bytes(), tmp_path, path.name)
    for number, raw in enumerate(islice(mutants(decoder.seeds, 1), _SHORT)):
        require_read_or_refused(decoder, raw, tmp_path, f"mutant {number} of seed 1")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(DECODERS))
def test_a_minute_of_each_decoder(name: str, tmp_path: Path) -> None:
    decoder, until = DECODERS[name], time.monotonic() + _LONG
    for number, raw in enumerate(mutants(decoder.seeds, 2)):
        require_read_or_refused(decoder, raw, tmp_path, f"mutant {number} of seed 2")
        if time.monotonic() > until:
            return


def test_every_module_that_decodes_is_here() -> None:
    """A new decoder needs seeds, or the reason for which nobody else writes what it reads."""
    found = set()
    for path in SOURCES.rglob("*.py"):
        if "quietmean.core.codec" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.ImportFrom) and node.module == "quietmean.core.codec"):
                continue
            if {one.name for one in node.names} & {"decode", "decode_json", "decode_toml"}:
                found.add(path.relative_to(SOURCES).as_posix())
    assert found == {one.module for one in DECODERS.values()} | OWN.keys()


def test_a_decoder_that_lets_an_error_of_its_library_through_is_found(tmp_path: Path) -> None:
    """What atheris found in seconds: msgspec raises another error for text that is no UTF-8."""
    proof = DECODERS["proof"]

    def careless(raw: bytes, folder: Path) -> Any:
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(raw, type=dict[str, str])

    wrong, raw = Decoder(proof.module, careless, (), proof.seeds), (CORPUS / "no-utf8.msgpack").read_bytes()
    with pytest.raises(pytest.fail.Exception, match="UnicodeDecodeError"):
        require_read_or_refused(wrong, raw, tmp_path, "no-utf8")


def test_mutants_differ_from_their_seeds_and_are_the_same_again() -> None:
    seeds = (b"one", b"two")
    first, again = (list(islice(mutants(seeds, 7), 200)) for _ in range(2))
    assert first == again
    assert len({*first} - {*seeds}) > 100
    assert np.mean([len(one) for one in first]) > 3
