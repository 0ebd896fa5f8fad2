"""All that the golden tests use of the package, imported in this one place: what moves is mended here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from quietmean.cli.main import main
from quietmean.core.codec import canonical_json, dump_state
from quietmean.core.errors import QuietmeanError
from quietmean.core.party import Message, PartyMachine, Step, settlement
from quietmean.node.net.stream import encode_vector, read_frame
from quietmean.node.net.wire import AnyFrame, Limits, Payload, encode_frame
from quietmean.planning.plan import Plan
from quietmean.protocols import registry
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, ExchangeKey, SecureNoise, Seed
from quietmean.randomness.discrete_gaussian import discrete_gaussian
from quietmean.randomness.insecure import InsecurePopulationNoise, InsecureSilence, InsecureStackedNoise
from quietmean.testing.examples import example_execution

__all__ = [
    "BitStream",
    "ExchangeKey",
    "Execution",
    "InsecurePopulationNoise",
    "InsecureStackedNoise",
    "Message",
    "PartyMachine",
    "Plan",
    "QuietmeanError",
    "SecureNoise",
    "Seed",
    "Step",
    "canonical_json",
    "command",
    "discrete_gaussian",
    "dump_state",
    "example_execution",
    "public_noise",
    "reframed",
    "registry",
    "settlement",
    "silence",
    "vector_bytes",
]


def public_noise(seed: int, parties: int) -> InsecureStackedNoise:
    """The noise of separate parties, as real ones would draw it, from a public number."""
    return InsecureStackedNoise(seed, parties)


def silence() -> InsecureSilence:
    """No noise and no secret."""
    return InsecureSilence()


def vector_bytes(vector: NDArray[np.float64], grid: float) -> bytes:
    """A vector (d,) as a node sends it; ``grid``: the step of the public grid, 0 without one."""
    return bytes(encode_vector(vector, grid))


def reframed(raw: bytes) -> tuple[list[Any], bytes, bytes]:
    """What a node makes of a frame: its tag and fields, its payload, and the frame as it would send it again."""

    async def read() -> tuple[AnyFrame, Payload, int]:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        return await read_frame(reader, Limits.of_study(parties=5, rounds=4, dimension=3, content=64, grid=0.5))

    frame, payload, _ = asyncio.run(read())
    return msgspec.to_builtins(frame, builtin_types=(bytes,)), bytes(payload), encode_frame(frame, len(payload)) + bytes(payload)


def command(arguments: Sequence[str], files: Mapping[str, Any]) -> tuple[int, str, dict[str, Any]]:
    """Exit code, standard output, and the JSON files that a command wrote; ``files`` are there when it starts.

    An argument that is the name of a file in ``files``, or that begins with ``new-``, becomes a path in an empty directory.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as written:
        for name, content in files.items():
            Path(folder, name).write_bytes(canonical_json(content))
        code = 0
        try:
            main([str(Path(folder, word)) if word in files or word.startswith("new-") else word for word in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        made = {path.name: msgspec.json.decode(path.read_bytes()) for path in Path(folder).glob("new-*")}
    return code, written.getvalue(), made
