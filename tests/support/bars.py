"""What a benchmark says of its bars."""

from __future__ import annotations

from collections.abc import Callable

# What was measured, how much it is, and the most that it should be.
Bar = Callable[[str, float, float], None]
