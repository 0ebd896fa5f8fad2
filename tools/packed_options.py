"""Write into docs/packed-sharing.md what options of packed secret sharing that were not taken would gain.

``python tools/packed_options.py``. The same command gives the same table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietmean.protocols import Target
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.inputs import input_chances
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME

PAGE = Path(__file__).parents[1] / "docs" / "packed-sharing.md"
BEGIN, END = "<!-- options: written by tools/packed_options.py -->", "<!-- end of options -->"
DIMENSION = 100_000
# Parties, colluding, dropouts.
CELLS = (
    (100, 10, 0.05),
    (100, 10, 0.1),
    (100, 10, 0.2),
    (100, 50, 0.05),
    (100, 50, 0.1),
    (100, 50, 0.2),
    (10, 1, 0.1),
    (10, 5, 0.2),
)


def row(parties: int, colluding: int, dropouts: float) -> str:
    """How much less error and bytes, and how many more bytes, in one cell."""
    asked = Target(parties, 1.0, 1e-6, DIMENSION, 1.0, colluding, dropouts)
    protocol: Any = PackedSharing(prime=LARGE_PRIME).design(asked).protocol
    chances = {count: chance for count, chance in input_chances(asked).items() if count >= protocol.minimum}
    # Each input would keep only the noise that so many inputs need.
    usual = sum(chance / count / (protocol.minimum - colluding) for count, chance in chances.items())
    exact = sum(chance / count / (count - colluding) for count, chance in chances.items())
    share = 1 / protocol.secrets
    # In numbers a coordinate.
    dealt, published, sliced = (parties - colluding - 1) * share, (parties - 1) * share, 1 + share
    sent = protocol.mixing_messages(parties) * protocol.message_bytes(parties, DIMENSION)
    # One block more from each dealer, and one number for each dealer from each member.
    check = (parties - 1) * (1 + parties) * protocol.word_bytes / sent
    cell = f"n = {parties}, c = {colluding}, {dropouts:.0%} leave"
    return f"| {cell} | {1 - exact / usual:.1%} | {1 - (dealt + sliced) / (dealt + published):.1%} | {check:.2%} |"


def written(text: str) -> str:
    """The page with a new table between its two marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    heads = "| cell | less error: excess noise | fewer bytes: slices | more bytes: degree check |"
    return "\n".join([before + BEGIN, heads, "|---|---:|---:|---:|", *(row(*cell) for cell in CELLS), END + after])


def main() -> None:
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
