"""Quantising pays for long vectors only: plans with bits "auto" take what sends less, and the page says from where on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from quietmean.node.net import AnswerFrame, Transfer
from quietmean.node.net.wire import encode_frame
from quietmean.planning.calibrate import calibrate
from quietmean.protocols import Target, configure
from quietmean.protocols.consensus import Consensus
from quietmean.protocols.consensus.quantiser import FRAME_BYTES, bytes_over_a_link

PAGE = Path(__file__).parents[2] / "docs" / "proofs/consensus.md"


def planned(parties: int, colluding: int, theta: float, dimension: int, bits: str | None) -> Consensus:
    target = Target(parties=parties, epsilon=1.0, delta=1e-6, colluding=colluding, dimension=dimension)
    protocol = calibrate(target, configure("consensus", {"theta": theta, **({} if bits is None else {"bits": bits})})).protocol
    assert isinstance(protocol, Consensus)
    return protocol


def sent(protocol: Consensus, dimension: int) -> int:
    return bytes_over_a_link(protocol.quantisation, protocol.iterations, dimension)


def rows() -> list[tuple[int, int, float, int]]:
    """Parties, colluding, theta, and from which length on the page says that quantising pays."""
    found = re.findall(r"^\| (\d+), (\d+) \| (0\.\d) \| .*? \| \d \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    return [(int(parties), int(colluding), float(theta), int(length)) for parties, colluding, theta, length in found]


def test_the_page_has_its_table() -> None:
    assert len(rows()) == 8


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("parties", "colluding", "theta", "length"), [row for row in rows() if row[0] <= 8])
def test_auto_takes_what_sends_less_and_the_page_says_from_where_on(
    parties: int, colluding: int, theta: float, length: int
) -> None:
    below, above = (planned(parties, colluding, theta, dimension, "auto") for dimension in (length - 1, length))
    assert below.quantisation is None
    assert above.quantisation is not None
    plain = planned(parties, colluding, theta, length, None)
    assert sent(above, length) < sent(plain, length)
    assert sent(plain, length - 1) <= bytes_over_a_link(above.quantisation, above.iterations, length - 1)


def test_frames_have_the_size_that_is_counted() -> None:
    """As of the sixtieth message of a long study, to a tenth."""
    transfer = len(encode_frame(Transfer(1000, 1, 60, 1.0, 30_000, bytes(8), 0), 250))
    answer = len(encode_frame(AnswerFrame(1000, "ok", 1, 60)))
    assert transfer + answer == pytest.approx(FRAME_BYTES, rel=0.1)
