"""What a coordinator signs of a page: its SHA-256, so that anybody can tell it from another page at the same address."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

import msgspec

from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Purpose
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, read_bounded, signed_in

_Text = Annotated[str, msgspec.Meta(max_length=100, pattern="^[0-9A-Za-z.+-]*$")]


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    page: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    session: str
    version: _Text


def place_of(page: Path) -> Path:
    """Where the signed digest of a page is: in a file beside it."""
    return page.with_name(f"{page.name}.signed")


@dataclass(frozen=True)
class SignedPage:
    """The digest of a page for one sealed study, signed by its coordinator.

    ``page``: SHA-256 of the file, hexadecimal; ``version``: of quietmean, which makes this page again. No time and no path is in
    it: the same page gives the same file.
    """

    signed: Signed
    page: str
    version: str

    @classmethod
    def sign(cls, content: bytes, sealed: Sealed, coordinator: Identity, version: str) -> Self:
        """Sign a page. Raises :class:`InputError` unless it is the study's own coordinator who signs."""
        if coordinator.public_key != sealed.invitation.convener:
            raise InputError(
                f"your key is {coordinator.public_key}, and the coordinator's is {sealed.invitation.convener}. "
                "Let the coordinator make and sign the page."
            )
        body = _Body(hashlib.sha256(content).hexdigest(), sealed.digest, version)
        return cls.verified(Signed.sign(Purpose.COMMITTEE_PAGE, msgspec.to_builtins(body), coordinator), sealed)

    @classmethod
    def verified(cls, signed: Signed, sealed: Sealed) -> Self:
        """Verify it. Raises :class:`InputError` unless the coordinator of this study signed it for this study."""
        body = signed.decode(_Body)
        if body.session != sealed.digest or not signed.is_by(sealed.invitation.convener):
            raise InputError("it is not signed by the coordinator of this study for this study. Ask the coordinator for it.")
        return cls(signed, body.page, body.version)

    @classmethod
    def is_for(cls, sealed: Sealed, content: bytes) -> bool:
        """Whether a file has such a signature for this study, of whatever page."""
        try:
            cls.verified(signed_in(Purpose.COMMITTEE_PAGE, content), sealed)
        except InputError:
            return False
        return True

    @classmethod
    def beside(cls, page: Path, content: bytes, sealed: Sealed) -> Self:
        """The signed digest in the file beside a page that has this ``content``.

        Raises :class:`InputError` where there is none, where it is not of this study, or of another page.
        """
        place = place_of(page)
        if not place.exists():
            raise InputError(f"{place} is not there, in which the coordinator signs {page.name}. Ask the coordinator for both.")
        try:
            found = cls.verified(signed_in(Purpose.COMMITTEE_PAGE, read_bounded(place)), sealed)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        if found.page != hashlib.sha256(content).hexdigest():
            raise InputError(
                f"{page} is not the page that the coordinator signed. Ask the coordinator for it, and trust no other."
            )
        return found


__all__ = ["SignedPage", "place_of"]
