"""A local run: all parties of a study on one machine, each in a process of its own."""

from quietmean.node.local.runner import Kill, LocalOutcome, run_local

__all__ = ["Kill", "LocalOutcome", "run_local"]
