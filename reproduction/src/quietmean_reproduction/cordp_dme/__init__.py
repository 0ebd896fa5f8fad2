"""Figures of CorDP-DME (Vithana, Cadambe, Calmon, Jeong): Table II, Figures 1 and 6."""

from quietmean_reproduction.cordp_dme import responders, table, tradeoff
from quietmean_reproduction.figure import Figure

FIGURES: tuple[Figure, ...] = (table.FIGURE, responders.FIGURE, tradeoff.FIGURE)
