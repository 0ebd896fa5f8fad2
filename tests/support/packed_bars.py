"""What packed secret sharing was asked to reach."""

from __future__ import annotations

# Parties, colluding, dropouts, and the bar on the error over that of one trusted curator without dropouts.
BARS = (
    (100, 10, 0.0, 1.13),
    (100, 10, 0.05, 1.20),
    (100, 10, 0.1, 1.25),
    (100, 10, 0.2, 1.35),
    (100, 50, 0.0, 2.03),
    (100, 50, 0.05, 2.24),
    (100, 50, 0.1, 2.37),
    (100, 50, 0.2, 2.67),
    (10, 1, 0.1, 1.31),
    (10, 5, 0.2, 3.6),
)
