"""The yes of who answers for the data, before anything of a sealed study leaves this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from quietmean.core.errors import InputError
from quietmean.studies.fingerprint import fingerprint
from quietmean.studies.sealed import Sealed
from quietmean.studies.study import Study
from quietmean.studies.study_keys import StudyKeys

# Hexadecimal digits of the digest that --accept needs: no search finds another study with the same ones.
_FEWEST_DIGITS = 32


class Asked(Protocol):
    """What a yes is about."""

    @property
    def study(self) -> Study: ...

    @property
    def sealed(self) -> Sealed | None: ...

    @property
    def keys(self) -> StudyKeys | None: ...


class Questions(Protocol):
    """Whom to ask: a person at a terminal, for instance."""

    def can_ask(self) -> bool: ...

    def compared(self, words: str, others: Sequence[str]) -> list[str]:
        """Which of the ``others`` read the same words."""
        ...

    def yes(self) -> bool:
        """Whether to take part."""
        ...


def approve(
    files: Asked, accept: str | None, compared: Sequence[str], questions: Questions, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Ask for a yes, unless this party has joined the same sealed study before, and bind the study's keys to it.

    ``accept``: the digest of the sealed study, or its first 32 digits or more, in place of a yes at the terminal. ``compared``:
    names of parties who read out the same words; the others count as colluders. Returns what a receipt says of it; nothing for
    a study that was not sealed. Raises :class:`InputError` without a yes.
    """
    sealed, keys = files.sealed, files.keys
    if sealed is None or keys is None:
        if accept is not None or compared:
            raise InputError("--accept and --compared are for a sealed study, this one is not: leave them out")
        return {}
    others = [entry.name for entry in sealed.entries if entry.name != keys.entry.name]
    if keys.sealed is None and accept is None:
        _require_somebody(questions)
        compared = list(compared) or questions.compared(fingerprint(sealed.digest).spoken, others)
    elif accept is not None:
        _require_digest(accept, sealed.digest)
    unknown = sorted(set(compared) - set(others))
    if unknown:
        raise InputError(f"{unknown[0]!r} is none of the other parties: choose from {', '.join(others)}")
    compared = sorted({*compared, *keys.compared})
    unconfirmed = [name for name in others if name not in compared]
    colluding = files.study.target(len(sealed.entries)).colluding
    trusted = unconfirmed if len(unconfirmed) > colluding else []
    if trusted:
        warn(f"nobody compared the words with {', '.join(trusted)}: I trust the convener for their keys")
    if keys.sealed is None and accept is None and not questions.yes():
        raise InputError("you did not say yes: nothing has left this machine")
    keys.bind(sealed.digest, compared)
    return {"digest": sealed.digest, "compared_with": compared, "trusts_convener_for": trusted}


def _require_digest(accept: str, digest: str) -> None:
    if len(accept) < _FEWEST_DIGITS or not digest.startswith(accept.lower()):
        raise InputError(
            f"--accept {accept} is not the digest of this study: give at least {_FEWEST_DIGITS} digits of {digest}, "
            "after you compared the words with other parties"
        )


def _require_somebody(questions: Questions) -> None:
    """Raises :class:`InputError` where nobody can be asked."""
    if not questions.can_ask():
        raise InputError(
            "nobody said yes to this study, nothing has left this machine: give --accept DIGEST, from quietmean words, or join "
            "at a terminal"
        )
