"""What is printed of a study: one figure, how sure it is, under what it holds, and the sentence that says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fact:
    """A figure that people read. Whoever shows it may shorten the ``sentence``, and writes no figure of its own.

    ``error``: a standard error in the units of ``value``, or what the figure is: "exact", or an "upper bound".
    ``condition``: against whom, or under what, it holds.
    """

    key: str
    value: float
    error: float | str
    condition: str
    sentence: str
