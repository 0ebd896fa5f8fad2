"""Options that commands have in common which look at what was agreed on, with this party's key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from quietmean.core.errors import InputError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """What belongs to a study or session that a command is about, and whose part in it this is.

    Parameters
    ----------
    roster
        Names, addresses and public keys of all parties; for a study that is not sealed.
    key
        This party's private key, from quietmean keygen.
    plan
        A plan that all parties share, from quietmean plan; by default each makes the same one from the study.
    no_privacy
        Agree to a study whose protocol protects nothing; refused otherwise.
    """

    roster: Path | None = None
    key: Path = Path("quietmean.key")
    plan: Path | None = None
    no_privacy: bool = False

    def require_key_alone(self, agreement: str, store: Path | None) -> None:
        """Raises :class:`InputError` for what says nothing of the ``agreement``, which holds all that its parties agree on."""
        options = {"roster": self.roster, "plan": self.plan, "no-privacy": self.no_privacy, "store": store}
        if names := [name for name, value in options.items() if value]:
            raise InputError(f"--{names[0]} says nothing of {agreement}: leave it out")


NO_AGREEMENT_OPTIONS = AgreementOptions()
