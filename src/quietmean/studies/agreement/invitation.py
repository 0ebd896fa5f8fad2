"""An invitation: a study and who convenes it, signed by the convener. It carries no secret, and anybody may read it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Purpose
from quietmean.randomness import fresh_bytes
from quietmean.studies.agreement.any_study import AnyStudy, any_of_tables, require_study
from quietmean.studies.agreement.signed import Signed, decode_base64, read_signed
from quietmean.studies.agreement.study import StudyTerms

NONCE_BYTES = 32


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``nonce`` makes every invitation another one, also to the same study: no entry fits two."""

    convener: str
    nonce: str
    previous: str | None
    study: dict[str, Any]
    version: int


@dataclass(frozen=True)
class Invitation:
    """A signed invitation that was verified.

    ``version``: 1, or one more than that of the seal that it follows; ``previous``: the digest of that seal, hexadecimal.
    """

    signed: Signed
    terms: AnyStudy
    convener: str
    version: int
    previous: str | None
    nonce: str

    @classmethod
    def make(cls, study: AnyStudy, convener: Identity, version: int = 1, previous: str | None = None) -> Invitation:
        """A new invitation to ``study``, with hybrid links unless it says others. Raises :class:`InputError` for an impossible
        version."""
        nonce = base64.b64encode(fresh_bytes(NONCE_BYTES)).decode()
        body = _Body(convener.public_key, nonce, previous, study.sealable().tables(), version)
        return cls.verified(Signed.sign(Purpose.INVITATION, msgspec.to_builtins(body), convener))

    @classmethod
    def load(cls, source: str | Path) -> Invitation:
        """From a file or a line of text. Raises :class:`InputError` that says what is wrong with it."""
        return cls.verified(read_signed(Purpose.INVITATION, source))

    @classmethod
    def verified(cls, signed: Signed) -> Invitation:
        """Raises :class:`InputError` if the convener did not sign it so, or if something in it is impossible."""
        body = signed.decode(_Body)
        if not signed.is_by(body.convener):
            raise InputError(
                f"the invitation is not as its convener {body.convener} signed it: it was changed on the way, ask for it again"
            )
        decode_base64(body.nonce, NONCE_BYTES, "the nonce of the invitation")
        if body.version < 1 or (body.version == 1) != (body.previous is None):
            raise InputError(f"the invitation has version {body.version} and previous {body.previous!r}: ask the convener anew")
        if body.previous is not None and not is_digest(body.previous):
            raise InputError("the previous seal that the invitation names is not a digest: ask the convener for another")
        study = any_of_tables(body.study, "the study of the invitation")
        return cls(signed, study, body.convener, body.version, body.previous, body.nonce)

    @cached_property
    def digest(self) -> str:
        """What entries are bound to: SHA-256 of label and bytes, hexadecimal."""
        return self.signed.digest

    @property
    def study(self) -> StudyTerms:
        """Raises :class:`InputError` where it is a session."""
        return require_study(self.terms)

    def fields(self) -> dict[str, Any]:
        """All that it says, in plain data."""
        return {**self.terms.tables(), "convener": self.convener, "version": self.version, "previous": self.previous or ""}


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 digest in small hexadecimal digits."""
    return len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)
