"""What a drop signs once a contribution is durable there: whose, which one, and when it came."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Self

import msgspec

from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Purpose
from quietmean.studies.agreement.deadlines import in_words
from quietmean.studies.agreement.signed import Signed, signed_in

_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _ReceiptBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    contributor: str
    digest: str
    drop: str
    session: str
    time: str


@dataclass(frozen=True)
class DropReceipt:
    """``contributor`` and ``drop``: identity keys; ``digest``: of the contribution's header; ``session``: of the sealed study;
    both are hexadecimal. ``time``: when the first contribution of this contributor came, by the drop's clock."""

    signed: Signed
    contributor: str
    digest: str
    drop: str
    session: str
    time: datetime

    @classmethod
    def sign(cls, drop: Identity, session: str, contributor: str, digest: str, time: float) -> Self:
        """Sign a receipt, the same for the same contribution and time, in seconds since 1970."""
        body = _ReceiptBody(contributor, digest, drop.public_key, session, datetime.fromtimestamp(time, UTC).isoformat())
        return cls.verified(Signed.sign(Purpose.COMMITTEE_RECEIPT, msgspec.to_builtins(body), drop))

    @classmethod
    def of_file(cls, content: bytes) -> Self:
        """From what a file or an answer holds. Raises :class:`InputError`."""
        return cls.verified(signed_in(Purpose.COMMITTEE_RECEIPT, content))

    @classmethod
    def verified(cls, signed: Signed) -> Self:
        """Raises :class:`InputError` unless the drop that it names signed it."""
        body = signed.decode(_ReceiptBody)
        if not signed.is_by(body.drop):
            raise InputError(f"the receipt is not as the drop {body.drop} signed it: it was changed on the way")
        wrong = InputError("the receipt has no time with its offset from UTC: it was changed on the way")
        time = convert(body.time, _Time, lambda reason: wrong)
        try:
            in_words(time)
        except OverflowError:
            raise wrong from None
        return cls(signed, body.contributor, body.digest, body.drop, body.session, time)

    @property
    def came(self) -> str:
        """When, in words."""
        return in_words(self.time)
