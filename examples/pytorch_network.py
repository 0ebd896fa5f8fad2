"""Train a small network together with PyTorch: written digits of 20 parties, each record protected, and no server.

``python examples/pytorch_network.py`` needs torch and scikit-learn. Every party hands in the gradient of each of its records at
the public model; what all see is the noisy mean of the shortened gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.func import functional_call, grad, vmap

import quietmean as qm

PARTIES, TRAINING, ROUNDS = 20, 1500, 60


def network() -> torch.nn.Module:
    """No BatchNorm: its statistics are of several records at once."""
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))


def gradients(net: torch.nn.Module, state: dict[str, Any], images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of each record: tensors whose first axis is the record."""

    def loss(state: dict[str, Any], image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(functional_call(net, state, image[None]), label[None])

    found: dict[str, torch.Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(state, images, labels)
    return found


def right(net: torch.nn.Module, state: dict[str, Any], images: torch.Tensor, labels: torch.Tensor) -> float:
    """The part of all images whose digit is told."""
    with torch.no_grad():
        told = functional_call(net, state, images).argmax(dim=1)
    return float((told == labels).double().mean())


def main() -> None:
    raw, digits = load_digits(return_X_y=True)
    images, labels = torch.tensor(raw / 16, dtype=torch.float32), torch.tensor(digits)
    parties = [slice(place, TRAINING, PARTIES) for place in range(PARTIES)]
    net = network()
    averaging = qm.learning.ModelAveraging(
        net.state_dict(), parties=PARTIES, rounds=ROUNDS, epsilon=8, delta=1e-5, unit="record", learning_rate=2, momentum=0.9
    )
    while not averaging.over:
        averaging.descend([gradients(net, averaging.model, images[own], labels[own]) for own in parties])
    net.load_state_dict(averaging.model)
    told = right(net, averaging.model, images[TRAINING:], labels[TRAINING:])
    print(f"right: {told:.3f} of {len(images) - TRAINING} digits; epsilon {averaging.epsilon:.3f} at delta 1e-5, for each record")


if __name__ == "__main__":
    main()
