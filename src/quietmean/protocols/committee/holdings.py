"""What a member took of contributions before its deadline: its part of each, and who was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from quietmean.protocols.committee.contribution import (
    ContributionError,
    DealtParts,
    Header,
    Part,
    excerpt_of,
    open_excerpt,
    read_header,
)
from quietmean.protocols.committee.keys import Opener
from quietmean.protocols.committee.session import CommitteeSession


@dataclass(frozen=True, eq=False)
class Held:
    """One contribution, by its header digest; ``dealer``: the raw identity key of who made it."""

    digest: bytes
    dealer: bytes
    weight: float
    part: Part = field(repr=False)


class Holdings(Protocol):
    """Contributions with different dealers, all of them checked. They are gone through twice, for the list and for the sum."""

    def __iter__(self) -> Iterator[Held]: ...


class UsedVouchers:
    """How many contributions by voucher a member took: not more than the study has, whatever its registrar certified."""

    def __init__(self, session: CommitteeSession) -> None:
        self._session, self._taken = session, 0

    def take(self, dealer: bytes) -> None:
        """Count the first contribution of a dealer. Raises :class:`ContributionError` for one more than the sum has room for."""
        if self._session.is_listed(dealer):
            return
        if self._taken >= self._session.vouchers:
            raise ContributionError(f"{self._taken} others came by voucher before, and the study has no more vouchers")
        self._taken += 1


class HeldInMemory:
    """For as many contributions as fit the memory. ``left_out``: of each file not taken the contributor, if known, and why."""

    def __init__(self, session: CommitteeSession, member: int, opener: Opener) -> None:
        self._session, self._member, self._opener = session, member, opener
        self._held: dict[bytes, Held] = {}
        self._vouchered = UsedVouchers(session)
        self.left_out: list[tuple[str, str]] = []

    def take(self, raw: bytes) -> bool:
        """Whether a whole file, or this member's excerpt of one, is of those taken. The first one of a contributor is."""
        dealer = ""
        try:
            header = read_header(self._session, raw)
            dealer = header.contributor
            held = self._opened(header, raw)
            if held.dealer not in self._held:
                self._vouchered.take(held.dealer)
        except ContributionError as error:
            self.left_out.append((dealer, str(error)))
            return False
        before = self._held.setdefault(held.dealer, held)
        if before.digest != held.digest:
            self.left_out.append((dealer, "its contributor made another one, which came first"))
        return before.digest == held.digest

    def _opened(self, header: Header, raw: bytes) -> Held:
        if header.kind != DealtParts.VALUE:
            raise ContributionError("it is a member's noise, not a contribution")
        own = excerpt_of(self._session, header, raw, self._member)
        part = open_excerpt(self._session, header, own, self._member, self._opener)
        return Held(header.digest, header.dealer, header.weight, part)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def __len__(self) -> int:
        return len(self._held)
