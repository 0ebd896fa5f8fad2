"""Commands of other distributions: entry points of the group ``quietmean.commands``, each a function or a cyclopts App.

A module is imported when its command is asked for, and for nothing else. The commands of quietmean itself cannot be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from quietmean.core.errors import InputError

GROUP = "quietmean.commands"
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Our commands that are distributed apart: the distribution, and its folder in the sources.
SEPARATE = {"reproduce": ("quietmean-reproduction", "reproduction")}


@dataclass(frozen=True)
class Extension:
    """A command's name, and every entry point that claims it: more than one is a clash."""

    name: str
    claims: tuple[EntryPoint, ...]

    @property
    def purpose(self) -> str:
        """One line for the list of commands, from the distribution's metadata: the command itself is not imported."""
        if len(self.claims) > 1:
            return f"Claimed by {_owners(self.claims)}: uninstall all but one."
        owner = self.claims[0].dist
        if owner is None or "Summary" not in owner.metadata:
            return f"From {_owners(self.claims)}."
        return owner.metadata["Summary"]

    @property
    def path(self) -> str:
        """Where its function is, as MODULE:NAME: enough to list it."""
        return f"{self.claims[0].module}:{self.claims[0].attr}"

    def load(self) -> Callable[..., Any]:
        """Import the command. Raises :class:`InputError` if it is broken or if several distributions claim its name."""
        if len(self.claims) > 1:
            raise InputError(f"command {self.name} is claimed by {_owners(self.claims)}: uninstall all but one of them")
        try:
            loaded = self.claims[0].load()
        # Somebody else's module may raise anything when it is imported.
        except Exception as error:
            raise self._broken(f"{type(error).__name__}: {error}") from error
        if not callable(loaded):
            raise self._broken(f"{self.claims[0].value} is not callable")
        command: Callable[..., Any] = loaded
        return command

    def _broken(self, why: str) -> InputError:
        return InputError(f"command {self.name} of {_owners(self.claims)} cannot be loaded ({why}): repair or uninstall it")


def find_extensions() -> dict[str, Extension]:
    """All commands of other distributions, by name in alphabetical order."""
    claims: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        claims.setdefault(point.name, []).append(point)
    return {name: Extension(name, tuple(claims[name])) for name in sorted(claims)}


def usable(extensions: Mapping[str, Extension], built_in: Collection[str]) -> tuple[list[Extension], list[str]]:
    """The commands that can be used, and one sentence for every other one."""
    good, sentences = [], []
    for name, extension in extensions.items():
        owners = _owners(extension.claims)
        if name in built_in:
            sentences.append(
                f"command {name} of {owners} is not used, quietmean has one of that name: uninstall that distribution"
            )
        elif _NAME.fullmatch(name) is None:
            sentences.append(
                f"command {name!r} of {owners} is not used: its name is not made of small letters, digits and dashes"
            )
        else:
            good.append(extension)
    return good, sentences


def check_installed(name: str, extensions: Collection[str]) -> None:
    """Raise :class:`InputError` for a command of ours whose distribution is not installed."""
    if name in SEPARATE and name not in extensions:
        distribution, folder = SEPARATE[name]
        raise InputError(
            f"command {name} belongs to the distribution {distribution}, which is not installed: "
            f"pip install ./{folder} in a copy of quietmean's sources"
        )


def _owners(claims: Collection[EntryPoint]) -> str:
    return " and ".join(
        "an unnamed distribution" if claim.dist is None else f"distribution {claim.dist.name}" for claim in claims
    )
