"""``quietmean simulate``: many runs of a plan on a simulated population."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.console import out, print_json, progress
from quietmean.core.file_kinds import FileKind, read_json
from quietmean.planning.plan import Plan
from quietmean.simulation import simulate


def simulate_command(
    plan: Path,
    *,
    runs: int = 1000,
    seed: int = 0,
    dropouts: float | None = None,
    gate: bool = False,
    workers: str = "1",
    json: bool = False,
) -> None:
    """Simulate independent runs of a plan on random values: mean squared error against the prediction.

    Parameters
    ----------
    plan
        Plan file, from quietmean plan --out.
    runs
        Number of independent runs, each with its own schedule, dropouts, values and noise.
    seed
        The same seed gives the same runs.
    dropouts
        Fraction of parties that drop out permanently; default as planned.
    gate
        Certify every history before its release, as parties do; takes far longer.
    workers
        How many processes of this machine run them; or the address of a Dask scheduler, such as tcp://host:8786.
    json
        One JSON document on standard output.
    """
    loaded = Plan.from_json(read_json(plan, FileKind.PLAN))
    with progress("simulating") as line:
        result = simulate(
            loaded,
            runs=runs,
            seed=seed,
            dropouts=dropouts,
            gate=gate,
            workers=workers,
            progress=lambda done: line.say(f"simulating: {done} of {runs} runs"),
        )
    document = {
        "protocol": loaded.protocol.name,
        "seed": seed,
        "dropouts": loaded.target.dropouts if dropouts is None else dropouts,
        **result.to_json(),
    }
    if json:
        print_json(document)
        return
    out.print(
        f"mean squared error {result.mse:.5g} +- {result.mse_standard_error:.2g} per coordinate over {len(result.errors)} runs "
        f"(predicted {result.prediction:.5g}); {result.failed} runs failed"
        + ("" if result.refused is None else f", {result.refused} of them refused before the release")
        + "".join(f"\n{count} failed: {why}" for why, count in result.failures.items())
    )
