"""Figures of "IncA: incremental averaging" (PETS 2026): accuracy, connectivity, dropouts, costs."""

from quietmean_reproduction.figure import Figure
from quietmean_reproduction.inca import accuracy, costs, dropouts, preconditions, rounds, telling

FIGURES: tuple[Figure, ...] = (
    accuracy.FIGURE,
    rounds.FIGURE,
    dropouts.PARAMETERS,
    dropouts.COMPARED,
    costs.SIZES,
    preconditions.FIGURE,
    costs.ROUNDS,
    telling.FIGURE,
)
