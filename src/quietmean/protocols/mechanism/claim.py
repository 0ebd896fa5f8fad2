"""What a mechanism claims, under which trust."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from quietmean.core.assumptions import Assumption
from quietmean.core.errors import InputError, named
from quietmean.core.schema import parameters_of
from quietmean.protocols.server import Server


class PrivacyClaim:
    """Whom one must trust, what is promised then, and what is revealed where nothing is.

    ``guarantee``: what it promises, one clause, which every certificate prints.
    ``private``: false where nothing protects values, and then ``reveals`` says what is revealed and to whom.
    ``keeps_target``: a plan promises beforehand, whatever happens, no more than its target; where it has a gate, with the gate.
    """

    name: ClassVar[str]
    server: ClassVar[Server] = Server.NONE
    trust: ClassVar[str] = "no server"
    guarantee: ClassVar[str] = "(epsilon, delta)-differential privacy under replacement of one unit's value, unconditional"
    private: ClassVar[bool] = True
    reveals: ClassVar[str] = "every party's value"
    keeps_target: ClassVar[bool] = False

    @property
    def is_private(self) -> bool:
        """:attr:`private`, and there is noise."""
        levels = [getattr(self, name) for name in parameters_of(type(self)) if name.startswith("sigma")]
        # An open level is chosen by calibration.
        noisy = [bool(np.any(level > 0)) if isinstance(level, int | float | np.ndarray) else True for level in levels]
        return self.private and (not noisy or any(noisy))

    @property
    def unprotected(self) -> str:
        """What there is to know about a protocol that is not :attr:`private`: one clause."""
        return f"{self.name} has no differential privacy, epsilon is infinite, and it reveals {self.reveals}"

    def require_privacy(self, no_privacy: bool) -> None:
        """Raises :class:`InputError` for a protocol without privacy, unless that is what was asked for."""
        if no_privacy and self.is_private:
            raise InputError(f"no privacy is asked for, but {self.name} has it: leave {named('no-privacy')} out")
        if not (no_privacy or self.is_private):
            raise InputError(f"{self.unprotected}: choose another protocol, or ask for that with {named('no-privacy', 'True')}")

    @property
    def trusts(self) -> str:
        """:attr:`trust`, where it depends on the parameters."""
        return self.trust

    @property
    def promises(self) -> bool:
        """:attr:`keeps_target`, where it depends on the parameters."""
        return self.keeps_target

    @property
    def promising_options(self) -> str:
        """The options with which a plan promises its target where it does not with these, in words; "" where none are known."""
        return ""

    def own_assumptions(self) -> tuple[Assumption, ...]:
        """What this protocol takes for granted besides: whom one must trust with what, and which ciphers must hold.

        One with the key of a standing assumption takes its place.
        """
        return ()
