"""How messages of a study or a session get from party to party, and when those in a folder are due."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from quietmean.core.domain import Links
from quietmean.core.errors import InputError
from quietmean.core.waits import LONGEST_SECONDS, SHORTEST_SECONDS
from quietmean.studies.agreement.deadlines import Deadlines

TIMEOUTS: Final = frozenset(("round_timeout", "start_timeout"))
# connections: parties dial each other, or a relay. folder: messages are files in a folder that each site names for itself.
Transport = Literal["connections", "folder"]
Seconds = Annotated[float, Field(ge=SHORTEST_SECONDS, le=LONGEST_SECONDS, allow_inf_nan=False)]


class TransportTerms:
    """What a study and a session have alike. ``called``: which of them it is, in sentences."""

    called: ClassVar[str] = "study"

    if TYPE_CHECKING:
        transport: Transport
        deadlines: Deadlines | None
        start_by: datetime | None
        round_timeout: float
        start_timeout: float
        links: Links | None

        @property
        def model_fields_set(self) -> set[str]: ...

    @property
    def by_folder(self) -> bool:
        """Whether messages are files in a folder."""
        return self.transport == "folder"

    @property
    def keyed_by(self) -> Links:
        """Which keys protect what the parties tell each other; X25519 in documents that do not say."""
        return self.links or Links.X25519

    def require_sealed(self) -> None:
        """Raises :class:`InputError` for what cannot be done with a roster alone."""
        if self.by_folder:
            raise InputError(
                f"a {self.called} through a folder has to be sealed, as its messages need keys of their own: use invite, accept "
                "and seal"
            )
        if self.keyed_by == Links.HYBRID:
            raise InputError(
                f'a {self.called} with links = "hybrid" has to be sealed, as the ML-KEM keys of its parties are in their '
                'entries: use invite, accept and seal, or give links = "x25519"'
            )

    def require_possible_transport(self) -> None:
        """Raises :class:`InputError` for what cannot go through a folder, or has deadlines and does not."""
        if not self.by_folder:
            if self.deadlines is not None:
                raise InputError(
                    f'the {self.called} has deadlines and its parties connect: give transport = "folder", or leave deadlines out'
                )
            return
        if time_outs := sorted(self.model_fields_set & TIMEOUTS):
            raise InputError(
                f"{time_outs[0]} says nothing in a {self.called} through a folder, which has deadlines: leave it out"
            )
        self.required_deadlines.require_possible()
        if self.start_by is not None:
            self.required_deadlines.require_attempts(self.start_by)

    @property
    def required_deadlines(self) -> Deadlines:
        """Of what goes through a folder. Raises :class:`InputError` without any."""
        if self.deadlines is None:
            raise InputError(
                f'a {self.called} through a folder needs deadlines = {{first = "2027-03-01T12:00:00Z", interval = 86400.0, '
                "poll = 3600.0}: when it starts at the latest, how long each round waits, and how often each party looks at the "
                "least, in seconds"
            )
        return self.deadlines

    @property
    def waits(self) -> tuple[float, float]:
        """In seconds: for the start, and in each round, by time-outs or deadlines."""
        deadlines, start_by = self.deadlines, self.start_by
        if deadlines is None:
            return self.start_timeout, self.round_timeout
        return self.start_timeout if start_by is None else deadlines.start_timeout(start_by), deadlines.interval
