"""The client: an ordinary Flower app that trains, and the mod that sends what it trained sealed."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from quietmean.flower import quietmean_mod

app = ClientApp(mods=[quietmean_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step of gradient descent towards the mean of this client's own data."""
    model = message.content["arrays"]["weights"].numpy()
    gradient = model - own_data(context)
    moved = ArrayRecord({"weights": Array(model - 0.5 * gradient)})
    return Message(RecordDict({"arrays": moved}), reply_to=message)


def own_data(context: Context) -> np.ndarray:
    """The client's data: a vector in a file of its folder."""
    home = context.node_config.get("quietmean-home")
    if home is None:
        home = Path(str(context.run_config["quietmean-homes"])) / str(context.node_config["partition-id"])
    return np.load(Path(str(home)).expanduser() / "data.npy")
