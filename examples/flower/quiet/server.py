"""The server: three rounds, each adds the noisy mean of the clients' updates to the model."""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from quietmean.flower import FlowerAgreement, SealedMean

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    agreement = FlowerAgreement.load(str(settings["agreement"]))
    workflow = SealedMean(grid, agreement, timeout=float(settings["timeout"]))
    workflow.wait(float(settings["wait"]))
    model = ArrayRecord({"weights": Array(np.zeros(agreement.terms.dimension))})
    rounds = []
    for number in range(1, int(settings["rounds"]) + 1):
        begun = time.monotonic()
        before = workflow.bytes_sent
        model, found = workflow.step(number, model)
        rounds.append(
            {
                "round": number,
                "mean": found.mean.tolist(),
                "counted": found.weight,
                "missing": found.missing,
                "steps": found.steps,
                "seconds": time.monotonic() - begun,
                "bytes": workflow.bytes_sent - before,
            }
        )
        print(f"round {number}: {found.weight:g} of {agreement.parties} clients in the mean, {found.steps} steps")
    Path(str(settings["out"])).write_text(json.dumps(rounds))
