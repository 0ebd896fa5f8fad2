"""The Python interface in a handful of functions and one class. Everything underneath is public too."""

from quietmean.api.functions import certify, node, plan, simulate

__all__ = ["certify", "node", "plan", "simulate"]
