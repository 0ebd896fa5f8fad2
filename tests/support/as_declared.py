"""Complete parameters of a protocol that no list of a test names: its defaults for a small target, and noise of 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from quietmean.core.schema import filled
from quietmean.protocols import Target, get_protocol


@cache
def as_declared(name: str, parties: int) -> dict[str, Any]:
    """As JSON. A protocol whose noise has a formula alone needs an entry of its own."""
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=1)
    kind = get_protocol(name)()
    return filled(kind, **kind.defaults(target)).with_noise(1.0, 2.0).resolved(parties).describe()


class OfEvery(dict[str, Any]):
    """What tests say of the protocols that they know, by name; of any other protocol what is declared."""

    def __init__(self, known: dict[str, Any], otherwise: Callable[[str], Any]) -> None:
        super().__init__(known)
        self._otherwise = otherwise

    def __missing__(self, name: str) -> Any:
        return self._otherwise(name)
