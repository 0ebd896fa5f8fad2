"""The result of a session: the choice with every contribution that counts, and the members' signed sums. Anybody can check it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from quietmean.core.codec import decode as decode_message
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.protocols.committee.choice import OpeningChoice, Resolved, chosen_bytes, is_possible
from quietmean.protocols.committee.design import decode, standard_error
from quietmean.protocols.committee.keys import Kind, Signer, key_line
from quietmean.protocols.committee.lists import CHOSEN, Entries, keys_of
from quietmean.protocols.committee.parameters import wrong_sums_corrected
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee.voting import MemberSum, is_summed
from quietmean.protocols.packed_sharing.correction import conclude
from quietmean.protocols.packed_sharing.packing import Elements
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import Seed

_LABEL = "quietmean committee result 1"


class ResultError(InputError):
    """A result that proves nothing; the sentence says why."""


class Result(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """``members`` (M), ``noise`` (V), digests of M's ``lists``, ``marks`` in the first; ``chosen``: U as bytes; the ``sums``."""

    label: str
    session: bytes
    members: tuple[int, ...]
    noise: tuple[int, ...]
    lists: tuple[bytes, ...]
    marks: bytes
    chosen: bytes
    sums: tuple[MemberSum, ...]

    @property
    def choice(self) -> OpeningChoice:
        """The choice of contributions that the result is of."""
        return OpeningChoice(self.members, self.noise, self.lists, hashlib.sha256(self.chosen).digest(), self.marks)

    @property
    def digest(self) -> bytes:
        """The digest of its choice."""
        return self.choice.digest(self.session)

    def to_bytes(self) -> bytes:
        """The bytes of the result's file."""
        return msgspec.msgpack.encode(self)


@dataclass(frozen=True, eq=False)
class CheckedResult:
    """A result that holds. ``total``, shape (d,): the sum of the values that count, ``weight`` of their weights.

    ``counted``: of each contribution in it the header digest, the contributor's key and its weight. ``sums``: how many members'
    sums it is from, ``wrong``: the members whose sums were wrong. ``standard_error``: of the noise in a coordinate of the mean.
    """

    total: Vector
    weight: float
    counted: tuple[tuple[bytes, str, float], ...] = field(repr=False)
    sums: int
    wrong: tuple[int, ...]
    standard_error: float

    @property
    def estimate(self) -> Vector:
        """The mean, shape (d,)."""
        mean: Vector = self.total / self.weight
        return mean


def result_of(session: CommitteeSession, resolved: Resolved, sums: Iterable[MemberSum]) -> Result:
    """The result with these sums over a choice."""
    choice = resolved.choice
    ordered = tuple(sorted((sent for sent in sums if sent.digest == resolved.digest), key=lambda sent: sent.member))
    return Result(
        _LABEL, session.session, choice.members, choice.noise, choice.lists, choice.marks, chosen_bytes(resolved.chosen), ordered
    )


def read_result(session: CommitteeSession, raw: bytes) -> Result:
    """A file of a result or of single sums, all signatures checked. Raises :class:`ResultError`."""
    result = decode_message(raw, Result, lambda reason: ResultError("it is not a result of a committee"))
    if result.label != _LABEL or result.session != session.session:
        raise ResultError("it is the result of another study")
    choice = result.choice
    if not is_possible(session.parameters, choice) or not _admitted(session, result.chosen):
        raise ResultError("it counts contributions that this study cannot have")
    digest = choice.digest(session.session)
    signed = all(sent.digest == digest and is_summed(session, sent) for sent in result.sums)
    if not signed or len({sent.member for sent in result.sums}) != len(result.sums):
        raise ResultError("it has a sum without the member's signature on these contributions")
    return result


def _admitted(session: CommitteeSession, chosen: bytes) -> bool:
    if len(chosen) % CHOSEN.itemsize:
        return False
    entries = np.frombuffer(chosen, dtype=CHOSEN)
    try:
        session.require_admitted(entries["dealer"], entries["weight"])
    except ContentError:
        return False
    return len(entries) >= session.parameters.minimum


def merge_results(results: Sequence[Result]) -> Result:
    """All sums of several files together, which were read. Raises :class:`ResultError` for none, and for two choices."""
    if not results:
        raise ResultError("no file has sums. Give those of the members.")
    if any(result.choice != results[0].choice for result in results[1:]):
        # It takes more than c_m members that vote twice.
        raise ResultError("two choices were opened: more members lie than this study was planned for, use neither result")
    sums: dict[int, MemberSum] = {}
    for result in results:
        for sent in result.sums:
            if sums.setdefault(sent.member, sent).share != sent.share:
                name = f"member {sent.member + 1}"
                raise ResultError(
                    f"{name} signed two different sums over one choice: it lies, so give the file of one member alone"
                )
    return msgspec.structs.replace(results[0], sums=tuple(sums[member] for member in sorted(sums)))


def check_result(session: CommitteeSession, result: Result) -> CheckedResult:
    """What the sums open, once enough of them fit together. Raises :class:`ResultError` for fewer, and if they do not.

    From T + 2 c_m sums c_m wrong ones are corrected, and from T + c_m they are found and the result refused.
    """
    parameters = session.parameters
    spare = len(result.sums) - parameters.sums_needed
    if spare < 0:
        raise ResultError(
            f"{len(result.sums)} members' sums do not give a result, which needs "
            f"{parameters.sums_needed}. Ask the other members for theirs."
        )
    shares = {sent.member: _share(session, sent) for sent in result.sums}
    corrected = wrong_sums_corrected(len(result.sums), parameters.threshold, parameters.colluding)
    secret = Seed.from_os()
    conclusion = conclude(parameters.packing, shares, corrected, parameters.dimension, secret)
    if conclusion.total is None:
        raise ResultError(
            f"the {len(shares)} members' sums do not fit together, as a member lies: with {parameters.sums_needed} to "
            f"{parameters.sums_needed + parameters.colluding} of them the result is refused, give those of more members"
        )
    entries = np.frombuffer(result.chosen, dtype=CHOSEN)
    weights = [float(weight) for weight in entries["weight"]]
    return CheckedResult(
        total=decode(parameters, conclusion.total, weights),
        weight=math.fsum(weights),
        counted=tuple(_counted(entries)),
        sums=len(shares),
        wrong=conclusion.wrong,
        standard_error=standard_error(parameters, len(entries), math.fsum(weights)),
    )


def _share(session: CommitteeSession, sent: MemberSum) -> Elements:
    share: Elements = np.frombuffer(sent.share, dtype="<u4")
    if int(share.max()) >= session.parameters.prime:
        raise ResultError(f"member {sent.member + 1}'s sum has a number that is not of this study: it lies")
    return share


def _counted(entries: Entries) -> Iterable[tuple[bytes, str, float]]:
    digests = keys_of(entries, "digest")
    return zip(digests, map(key_line, keys_of(entries)), entries["weight"].tolist(), strict=True)


# --- the end --------------------------------------------------------------------------------------------------------------------


def sign_end(session: CommitteeSession, signer: Signer) -> bytes:
    """A member's word that it deleted shares, lists and the mailbox key of this session: 64 bytes."""
    return signer.sign(Kind.END, session.session)


def is_end(session: CommitteeSession, member: int, signature: bytes) -> bool:
    """Whether a member gave that word."""
    return session.keys.is_signed(session.members[member], Kind.END, session.session, signature)
