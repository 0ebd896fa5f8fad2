"""Against whom something is certified, on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from quietmean.core.errors import InputError
from quietmean.core.json_file import read_as
from quietmean.core.party import PartyId
from quietmean.core.readable import some_of

if TYPE_CHECKING:
    from quietmean.privacy import Adversary, PrivacyAnalysis
    from quietmean.privacy.coalitions import Effort

# Seconds of one core.
EFFORT = 180.0
# The most parties that an error names.
_MOST_NAMED = 8


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdversaryOptions:
    """Against whom: one adversary, or every coalition of a size.

    Parameters
    ----------
    corrupt
        Parties that collude, by their names in the receipt or their numbers, such as north,east or 0,4,7; an empty text for none.
    observed
        JSON file with intercepted messages, a list of [party, round].
    observe_fraction
        Intercept each message with this probability instead.
    seed
        Seed of the interception; default 0.
    colluding
        Size of the coalitions; default from the receipt, or one party in ten.
    effort
        Seconds of one core that trying all coalitions may take, as counted beforehand: else there is a bound; default 180.
    workers
        How many processes of this machine try them, default 1; or the address of a Dask scheduler, such as tcp://host:8786.
    """

    corrupt: str | None = None
    observed: Path | None = None
    observe_fraction: float | None = None
    seed: int | None = None
    colluding: int | None = None
    effort: float | None = None
    workers: str | None = None

    @property
    def explicit(self) -> bool:
        """One adversary rather than every coalition."""
        return any(value is not None for value in (self.corrupt, self.observed, self.observe_fraction))

    def given(self) -> dict[str, Any]:
        """What was given, by the name of its option."""
        return {name.replace("_", "-"): value for name, value in vars(self).items() if value is not None}

    def require_effect(self, *, matrix: bool) -> None:
        """Raises :class:`InputError` for options of the other way to certify; ``matrix`` is about one adversary."""
        of_coalitions = [name for name in ("colluding", "effort", "workers") if name in self.given()]
        of_one = ["matrix"] if matrix else []
        if useless := (of_coalitions if self.explicit else of_one):
            here, needed = ("with", "without") if self.explicit else ("without", "with")
            raise InputError(
                f"--{useless[0]} has no effect {here} an adversary of --corrupt, --observed or --observe-fraction: leave it out, "
                f"or certify {needed} one"
            )
        self.allowed()
        if self.seed is not None and self.observe_fraction is None:
            raise InputError(f"seed {self.seed} has no effect without --observe-fraction: leave it out, or give that too")

    def allowed(self) -> Effort:
        """What trying all coalitions may take. Raises :class:`InputError` for impossible numbers."""
        from quietmean.privacy.coalitions import Effort

        return Effort(EFFORT if self.effort is None else self.effort, 1 if self.workers is None else self.workers)

    def adversary(self, analysis: PrivacyAnalysis, names: Sequence[str] = ()) -> Adversary:
        """The one that was named; ``names``: of the parties, where the file has them.

        Messages that are named, or drawn, stand in place of those that the target says are read.
        """
        from quietmean.privacy import Adversary
        from quietmean.randomness import Seed

        unsaid = self.observed is None and self.observe_fraction is None
        read = analysis.terms.eavesdropper.observed if unsaid else read_observations(self.observed)
        corrupt = parse_parties(self.corrupt or "", names)
        if self.observe_fraction is not None:
            seed = Seed.public("observe", self.seed or 0)
            read |= Adversary.random_eavesdropper(self.observe_fraction, analysis.transcript, seed).observed
        return Adversary(corrupt, read)


def parse_parties(text: str, names: Sequence[str] = ()) -> frozenset[PartyId]:
    """Parties from a text such as "0,4,7" or "north,east"; ``names``: of the parties, where the file has them.

    Raises :class:`InputError` for anything else.
    """
    return frozenset(parse_party(part.strip(), names) for part in text.split(",") if part.strip())


def parse_party(text: str, names: Sequence[str] = ()) -> PartyId:
    """A party by its name, or by its number from 0. Raises :class:`InputError` for anything else."""
    if text in names:
        return names.index(text)
    with suppress(ValueError):
        return int(text)
    there = f"the file names {some_of(names, _MOST_NAMED)}" if names else "the file has no names, give numbers such as 0,4,7"
    raise InputError(f"{text!r} is not one of the parties: {there}")


def party_text(party: PartyId, names: Sequence[str]) -> str:
    """What a party is called: by its name, where the file has one."""
    return names[party] if party < len(names) else f"party {party}"


def names_in(raw: Mapping[str, Any]) -> list[str]:
    """Return the names of the parties in a receipt; none where it has no name for each."""
    origin = raw.get("origin")
    names = origin.get("names") if isinstance(origin, Mapping) else None
    return [str(name) for name in names] if isinstance(names, list) and len(names) == raw.get("parties") else []


def read_observations(path: Path | None) -> frozenset[tuple[PartyId, int]]:
    """Intercepted messages (party, round) from a JSON file; none without a file. Raises :class:`InputError` for other content."""
    if path is None:
        return frozenset()

    def unreadable(reason: str) -> InputError:
        return InputError(f"file {path} cannot be read as a list of [party, round] ({reason}): mend it")

    return frozenset(read_as(path, list[tuple[int, int]], unreadable))
