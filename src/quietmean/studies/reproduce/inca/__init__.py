"""Figures of "IncA: incremental averaging" (PETS 2026): accuracy, connectivity, dropouts, costs."""

from quietmean.studies.reproduce.figure import Figure
from quietmean.studies.reproduce.inca import accuracy, costs, dropouts, preconditions, rounds, telling

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
