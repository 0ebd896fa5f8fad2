"""Figures of ADQSP (Li, Gundersen, Lopuhaä-Zwakenberg, Heusdens): convergence, leakage, accuracy."""

from quietmean_reproduction.adqsp import accuracy, cells, convergence, leakage, messages
from quietmean_reproduction.figure import Figure

FIGURES: tuple[Figure, ...] = (
    convergence.FIGURE,
    cells.FIGURE,
    leakage.FIGURE,
    accuracy.FIGURE,
    messages.FIGURE,
)
