"""Figures of CorDP-DME (Vithana, Cadambe, Calmon, Jeong): Table II, Figures 1, 3, 4 and 6."""

from quietmean_reproduction.cordp_dme import geometry, responders, table, tradeoff
from quietmean_reproduction.figure import Figure

FIGURES: tuple[Figure, ...] = (table.FIGURE, responders.FIGURE, geometry.FIGURE_3, geometry.FIGURE_4, tradeoff.FIGURE)
