"""Write into docs/proofs/packed-sharing.md what options of packed secret sharing that were not taken would gain.

``python tools/packed_options.py``. The same command gives the same table.
"""

from __future__ import annotations

from typing import Any

from page_parts import DOCS, between, table

from quietmean.protocols import Target
from quietmean.protocols.packed_sharing import PackedSharing
from quietmean.protocols.packed_sharing.encoding import input_chances
from quietmean.protocols.packed_sharing.spec import LARGE_PRIME

PAGE = DOCS / "proofs/packed-sharing.md"
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


def cells(parties: int, colluding: int, dropouts: float) -> tuple[str, ...]:
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
    traffic = protocol.traffic(parties, DIMENSION)
    sent = (traffic.messages or 0.0) * traffic.message_bytes
    # One block more from each dealer, and one number for each dealer from each member.
    check = (parties - 1) * (1 + parties) * protocol.word_bytes / sent
    cell, gained = f"n = {parties}, c = {colluding}, {dropouts:.0%} leave", 1 - (dealt + sliced) / (dealt + published)
    return cell, f"{1 - exact / usual:.1%}", f"{gained:.1%}", f"{check:.2%}"


def written(text: str) -> str:
    """The page with a new table between its two marks."""
    heads = ("cell", "less error: excess noise", "fewer bytes: slices", "more bytes: degree check")
    return between(text, BEGIN, END, "\n" + table(heads, (cells(*cell) for cell in CELLS)))


def main() -> None:
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
