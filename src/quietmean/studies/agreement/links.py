"""Which links need what is agreed on to be sealed."""

from __future__ import annotations

from quietmean.core.domain import Links
from quietmean.core.errors import InputError


def require_sealed(links: Links, subject: str) -> None:
    """Raises :class:`InputError` for a study or session that cannot be done with a roster alone; ``subject`` it is."""
    if links == Links.HYBRID:
        raise InputError(
            f'a {subject} with links = "hybrid" has to be sealed, as the ML-KEM keys of its parties are in their entries: use '
            'invite, accept and seal, or give links = "x25519"'
        )
