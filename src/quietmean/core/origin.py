"""Whose document of which study a file is, from the origin that its receipt states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from quietmean.core.codec import digest
from quietmean.core.errors import InputError

# The format of the receipt of a party's part in a session.
SESSION_RECEIPT = "quietmean-session-receipt-1"
# Letters of a release's name.
_LONGEST = 60


@cache
def package_version() -> str:
    """The release that runs."""
    try:
        return version("quietmean")
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def naming_release(raw: Mapping[str, Any]) -> Iterator[None]:
    """For who reads a receipt: raises :class:`InputError` with the release that wrote it, where that is another one than this."""
    origin = raw.get("origin")
    release = origin.get("quietmean") if isinstance(origin, Mapping) else None
    try:
        yield
    except InputError as error:
        if isinstance(release, str) and release[:_LONGEST] != package_version():
            raise InputError(
                f"{error} (version {release[:_LONGEST]} of quietmean wrote it, and this is {package_version()}: try that one)"
            ) from None
        raise


def study_and_party(origin: Mapping[str, Any] | None) -> str:
    """A digest of study, parties, and who of them wrote the document; empty where the origin does not say.

    It is the same when a party goes on after a crash, when contributions are added up again, and for all who began.
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
