"""Whose document of which study a file is, from the origin that its receipt states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quietmean.core.codec import digest

# The format of the receipt of a party's part in a session.
SESSION_RECEIPT = "quietmean-session-receipt-1"


def study_and_party(origin: Mapping[str, Any] | None) -> str:
    """A digest of study, parties, and who of them wrote the document; empty where the origin does not say.

    It is the same when a party goes on after a crash, when contributions are added up again, and whoever was in at the start.
    """
    if origin is None:
        return ""
    start, sealed, names, party = (origin.get(name) for name in ("start", "sealed", "names", "party"))
    among = start.get("roster") if isinstance(start, Mapping) else origin.get("roster", origin.get("session"))
    if among is None:
        return ""
    own = names[party] if isinstance(names, list | tuple) and isinstance(party, int) and party < len(names) else None
    seal = sealed.get("digest") if isinstance(sealed, Mapping) else None
    return digest({"study": origin.get("study"), "among": among, "party": own, "sealed": seal})
