"""Studies as the modules that seal in a browser take them, and what members open of the files that these make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.statement import LinearRelation, StatedValue
from quietmean.node.committee import IdentitySigner, MailboxOpener, PublicKeys
from quietmean.node.mailbox import mailbox_bytes, open_with
from quietmean.protocols.committee.contribution import make_contribution, open_excerpt, read_whole
from quietmean.protocols.committee.keys import SEAL_BYTES, AdmissionByVoucher, Kind, Vouching, voucher_content
from quietmean.protocols.committee.parameters import CommitteeParameters, ballots_for
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee_size import Size
from quietmean.protocols.packed_sharing.spec import BOX
from quietmean.randomness import Seed
from support.committee_world import identity, mailbox

INVITATION = "ab" * 32
# Members, colluding, gone, and the most numbers on a polynomial.
UNVERIFIED = [(4, 1, 1, 1), (5, 1, 1, 2), (7, 1, 1, 4), (9, 2, 2, 3)]
VERIFIED = [(5, 1, 1, 1), (6, 1, 2, 1), (9, 2, 2, 1)]


def program_of(session: CommitteeSession, weight: float) -> dict[str, Any]:
    """What modules that seal read of an encoding program."""
    layout = session.layout(weight) if session.parameters.verified else None
    if layout is None:
        most = [session.parameters.range] * session.parameters.dimension
        return {"lows": [0] * len(most), "highs": most, "relations": [], "weight": weight, "secrets": session.parameters.secrets}
    lows, highs = layout.lows.tolist(), (layout.lows + layout.spans).tolist()
    sums, cut = layout.sums, layout.dimension
    # The last term of each is the number of its own.
    terms = [slice(begin, end - 1) for begin, end in itertools.pairwise([*sums.begins.tolist(), len(sums.columns)])]
    relations = [
        [sums.columns[own].tolist(), sums.factors[own].tolist(), low, high]
        for own, low, high in zip(terms, lows[cut:], highs[cut:], strict=True)
    ]
    return {"lows": lows[:cut], "highs": highs[:cut], "relations": relations, "weight": weight, "secrets": 1}


def study_of(session: CommitteeSession, weight: float = 1.0) -> dict[str, Any]:
    """A study as contribution.js takes it, bytes in hexadecimal."""
    parameters = session.parameters
    return {
        "session": session.session.hex(),
        "members": [key.hex() for key in session.raw_members],
        "names": [f"m{number}" for number in range(1, len(session.raw_members) + 1)],
        "mailboxes": [key.hex() for key in session.mailboxes],
        "colluding": parameters.colluding,
        "verified": parameters.verified,
        "registrar": "" if session.vouching is None else session.vouching.registrar,
        "invitation": INVITATION,
        "program": program_of(session, weight),
    }


def voucher_for(name: str, weight: float | None = None) -> AdmissionByVoucher:
    """The voucher of who has the key of this name."""
    content = voucher_content(INVITATION, identity(name).public_key, weight)
    return AdmissionByVoucher(weight, IdentitySigner(identity("registrar")).sign(Kind.VOUCHER, content))


def shown_voucher(name: str, admission: AdmissionByVoucher | None) -> dict[str, str]:
    """A voucher as contribution.js takes it; None of who is listed."""
    secret = identity(name).private_key.private_bytes_raw()
    return {"secret": secret.hex(), "admission": "" if admission is None else admission.to_bytes().hex()}


@dataclass(frozen=True, eq=False)
class RandomStudy:
    """One of many studies, with numbers that somebody may answer: ``seed`` and ``masks`` are given to both languages."""

    session: CommitteeSession = field(repr=False)
    contributor: str
    admission: AdmissionByVoucher | None
    weight: float
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    seed: bytes
    masks: bytes

    @classmethod
    def number(cls, number: int) -> RandomStudy:
        """The same for the same number, but for keys."""
        random = np.random.default_rng([29, number])
        verified = bool(random.integers(2))
        members, colluding, gone, secrets = (VERIFIED if verified else UNVERIFIED)[random.integers(3 if verified else 4)]
        dimension, steps = int(random.integers(1, 13)), int(random.integers(1, 2000))
        step, centre = 2.0 ** -float(random.integers(0, 9)), float(random.integers(-3, 4)) / 4
        parameters = CommitteeParameters(
            members=members, colluding=colluding, gone=gone, size=Size.GONE, contributors=2, minimum=1, dimension=dimension,
            secrets=int(random.integers(1, secrets + 1)), ballots=ballots_for(members, colluding, gone), region=BOX,
            centre=centre, clip=steps * step, step=step, sigma=2 * step, largest_weight=4.0, verified=verified,
        )  # fmt: skip
        listed = bool(random.integers(2))
        contributor = f"contributor {number % 5}"
        weight = float(random.choice([1.0, 1.0, 0.5, 3.0]))
        session = CommitteeSession(
            random.bytes(32),
            parameters,
            tuple(identity(f"member {member}").public_key for member in range(members)),
            tuple(mailbox_bytes(mailbox(member)) for member in range(members)),
            {identity(name).public_key: 4.0 for name in ([contributor, "another"] if listed else [])},
            PublicKeys(),
            _stated(parameters, random) if verified else None,
            None if listed else Vouching(identity("registrar").public_key, INVITATION, 2),
        )
        admission = None if listed else voucher_for(contributor, (None, 3.0, 3.5)[random.integers(3)])
        program = program_of(session, weight)
        beyond = 3 if random.integers(3) == 0 else 0
        numbers = random.integers(np.array(program["lows"]) - beyond, np.array(program["highs"]) + beyond + 1)
        return cls(session, contributor, admission, weight, numbers, random.bytes(32), random.bytes(32))

    @property
    def question(self) -> dict[str, Any]:
        """What JavaScript is asked: to make its file from given seeds, with ciphertexts of their own."""
        return {
            "call": "contribute",
            "study": study_of(self.session, self.weight),
            "vector": self.numbers.tolist(),
            "seed": self.seed.hex(),
            "voucher": shown_voucher(self.contributor, self.admission),
            "random": [self.masks.hex(), *(Seed.from_os().secret.hex() * 2 for _ in self.session.members)],
        }

    def made(self) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        """The file from the same seeds without its secrecy, and what it seals to each member: info and content."""
        parts: list[tuple[bytes, bytes]] = []

        class Recording:
            def seal(self, mailbox: bytes, info: bytes, content: bytes) -> bytes:
                parts.append((info, content))
                return bytes(SEAL_BYTES) + content

        with _masks_from(self.masks):
            signer = IdentitySigner(identity(self.contributor))
            seed = Seed(self.seed)
            raw = make_contribution(self.session, signer, Recording(), self.numbers, self.weight, seed, self.admission)
        return raw, parts


@contextmanager
def _masks_from(secret: bytes) -> Iterator[None]:
    with mock.patch.object(Seed, "from_os", staticmethod(lambda: Seed(secret))):
        yield


def _stated(parameters: CommitteeParameters, random: np.random.Generator) -> StatedValue:
    """Ranges within the plan's, and a few relations that most values have."""
    ends = parameters.centre + parameters.clip * np.sort(random.uniform(-1, 1, (2, parameters.dimension)), axis=0)
    relations = []
    for _ in range(int(random.integers(0, 4))):
        places = np.sort(random.permutation(parameters.dimension)[: int(random.integers(1, 5))])
        factors = random.choice([-2, -1, 1, 3], len(places))
        reach = parameters.clip * float(np.abs(factors).sum())
        relations.append(LinearRelation(places, factors, -reach * random.uniform(0.2, 1.1), reach * random.uniform(0.2, 1.1)))
    return StatedValue(ends[0], ends[1], tuple(relations))


def differences(studies: Sequence[RandomStudy], answers: Sequence[dict[str, Any]]) -> tuple[list[str], int]:
    """Where files by JavaScript are not those of members' software from the same seeds, and how many files were compared.

    What both refuse is no difference.
    """
    different, compared = [], 0
    for study, found in zip(studies, answers, strict=True):
        try:
            raw, parts = study.made()
        except InputError:
            if "none that this study can have" not in found.get("error", ""):
                different.append("not refused")
            continue
        if "error" in found:
            different.append(found["error"])
            continue
        compared += 1
        try:
            different += _differences(study, bytes.fromhex(found["answer"][0]), raw, parts)
        except (InputError, ValueError) as error:
            different.append(str(error))
    return different, compared


def _differences(study: RandomStudy, own: bytes, raw: bytes, parts: list[tuple[bytes, bytes]]) -> list[str]:
    session, different = study.session, []
    header, excerpts = read_whole(session, own)
    digests, front = 32 * len(parts), header.size - 64 - (0 if study.admission is None else 72)
    if own[: front - digests] != raw[: front - digests] or own[front + 64 : header.size] != raw[front + 64 : header.size]:
        different.append("front")
    for member, (excerpt, (info, content)) in enumerate(zip(excerpts, parts, strict=True)):
        if open_with(mailbox(member), info, excerpt[header.size :]) != content:
            different.append(f"part {member}")
        open_excerpt(session, header, excerpt, member, MailboxOpener(mailbox(member)))
    return different
