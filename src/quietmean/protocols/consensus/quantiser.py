"""The mid-rise quantiser with subtractive dither, and its indices as packed bits, with those beyond the bits behind them."""

from __future__ import annotations

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import Vector
from quietmean.protocols.consensus.spec import Quantisation
from quietmean.randomness import BitStream, Seed

Indices = Ints

# An index beyond the bits, behind the packed ones: the place of its number, and how far it is from the first that fits.
_BEYOND = np.dtype([("place", "<u4"), ("index", "<i8")])
# Nothing is so many cells away: float64 cannot tell cells apart there.
FARTHEST = 2.0**60
# Bytes of a message besides its numbers: its header with the weight, and the answer; as measured between machines.
FRAME_BYTES = 62


def dither(settings: Quantisation, iteration: int, first: int, count: int, dimension: int) -> Vector:
    """Rows ``first`` .. ``first + count - 1`` of the iteration's dither, uniform on [-1/2, 1/2) of a cell: shape (count, d).

    It is public: it only has to be independent of what is quantised. Every link (every
    sender, if it broadcasts) has its own row in every iteration.
    """
    seed = Seed.public("consensus dither", settings.dither_seed, iteration)
    # A stream is read in blocks of 16 bytes, two numbers each.
    blocks = -(-dimension // 2)
    numbers = BitStream(seed, first * blocks).uniform(count * 2 * blocks)
    return numbers.reshape(count, 2 * blocks)[:, :dimension] - 0.5


def quantise(settings: Quantisation, iteration: int, vector: Vector, shift: Vector) -> tuple[Indices, Mask]:
    """Indices of ``vector`` under the dither ``shift``, any equal shapes, and which entries overloaded.

    From 0 to 2^bits - 1, or beyond where overloads are sent, too: then none is.
    """
    width, half = settings.width(iteration), 1 << (settings.bits - 1)
    scaled = vector / width
    farthest = FARTHEST if settings.send_overloads else float(half)
    overloads = np.abs(scaled) > farthest - 0.5
    # Clipped before the conversion: an entry may be larger than any integer.
    indices = np.clip(np.floor(scaled + shift), -farthest, farthest - 1).astype(np.int64) + half
    return indices, overloads


def reconstruct(settings: Quantisation, iteration: int, indices: Indices, shift: Vector) -> Vector:
    """The vector that both ends decode, in the shape of ``indices`` and ``shift``.

    Without overload its error is uniform on a cell and independent of the quantised vector.
    """
    half = 1 << (settings.bits - 1)
    values: Vector = (indices - half + 0.5 - shift) * settings.width(iteration)
    return values


class Quantisers:
    """All quantisers of a run at once. ``overloads`` (iterations,): how many entries overloaded one in each iteration; ``peaks``
    (iterations,): the largest input of one, in cells.
    """

    def __init__(self, settings: Quantisation, iterations: int) -> None:
        self._settings = settings
        self.overloads = np.zeros(iterations, dtype=np.int64)
        self.peaks = np.zeros(iterations)

    def sent(self, iteration: int, target: Vector, rows: Ints, sends: Mask) -> Vector:
        """The decoded ``target`` of every link, shape (2m, d).

        ``rows`` (2m,): the row of each link's dither; ``sends`` (2m,): the links over which a message is sent.
        """
        settings, count = self._settings, int(rows.max(initial=0)) + 1
        shift = dither(settings, iteration, 0, count, target.shape[1])[rows]
        indices, overloaded = quantise(settings, iteration, target, shift)
        # A broadcast is one message, however many links it takes.
        overloads = np.zeros(count, dtype=np.int64)
        np.maximum.at(overloads, rows[sends], overloaded[sends].sum(axis=1))
        self.overloads[iteration - 1] = overloads.sum()
        self.peaks[iteration - 1] = np.abs(target[sends]).max(initial=0.0) / settings.width(iteration)
        return reconstruct(settings, iteration, indices, shift)


def bytes_over_a_link(settings: Quantisation | None, iterations: int, dimension: int) -> int:
    """What a run sends over one link each way: z^(0), then a message an iteration, with headers, answers and weights."""
    each = 8 * dimension if settings is None else packed_size(settings, dimension)
    return 8 * dimension + FRAME_BYTES + iterations * (each + FRAME_BYTES)


def packed_size(settings: Quantisation, dimension: int) -> int:
    """Bytes of :func:`pack`, but for messages in which more numbers overload than there is always room for."""
    return _bytes_of_indices(settings, dimension) + _BEYOND.itemsize * _room(settings, dimension)


def most_bytes(settings: Quantisation, dimension: int) -> int:
    """The bytes of :func:`pack`, at most."""
    return _bytes_of_indices(settings, dimension) + settings.send_overloads * _BEYOND.itemsize * dimension


def _bytes_of_indices(settings: Quantisation, dimension: int) -> int:
    return -(-settings.bits * dimension // 8)


def _room(settings: Quantisation, dimension: int) -> int:
    """How many numbers beyond the bits every message has room for: eight times as many as one in 8,000 makes, and four.

    Who sees traffic sees the size of a message, which so does not say how many there are.
    """
    return min(dimension, 4 + dimension // 1000) if settings.send_overloads else 0


def pack(settings: Quantisation, indices: Indices) -> bytes:
    """Indices of shape (d,), ``bits`` bits each, most significant first; then those beyond the bits, and room for more."""
    places = np.arange(settings.bits - 1, -1, -1)
    fitting = np.clip(indices, 0, (1 << settings.bits) - 1)
    packed = np.packbits(((fitting[:, None] >> places) & 1).astype(np.uint8).ravel()).tobytes()
    beyond = np.flatnonzero(indices != fitting)
    rest = np.zeros(max(beyond.size, _room(settings, indices.size)), dtype=_BEYOND)
    # No number is behind the last one.
    rest["place"] = indices.size
    rest["place"][: beyond.size], rest["index"][: beyond.size] = beyond, indices[beyond]
    return packed + rest.tobytes()


def unpack(settings: Quantisation, content: bytes, dimension: int) -> Indices | None:
    """The inverse; None for what :func:`pack` makes of no indices."""
    bits, size = settings.bits, _bytes_of_indices(settings, dimension)
    beyond = len(content) - size
    if beyond % _BEYOND.itemsize or not 0 <= beyond <= most_bytes(settings, dimension) - size:
        return None
    unpacked = np.unpackbits(np.frombuffer(content, dtype=np.uint8, count=size))
    places = np.arange(bits - 1, -1, -1)
    indices: Indices = (unpacked[: bits * dimension].reshape(dimension, bits).astype(np.int64) << places).sum(axis=1)
    rest = np.frombuffer(content, dtype=_BEYOND, offset=size)
    rest = rest[rest["place"] != dimension]
    if not (rest["place"] < dimension).all() or not (np.abs(rest["index"].astype(np.float64)) <= 2 * FARTHEST).all():
        return None
    indices[rest["place"]] = rest["index"]
    # Each has one form: in order, once, nothing that fits besides, and no bits set behind the last index.
    return indices if pack(settings, indices) == content else None
