"""The Python interface in a handful of functions and one class. Everything underneath is public too."""

from quietmean.api.functions import Node, certify, plan, simulate

__all__ = ["Node", "certify", "plan", "simulate"]
