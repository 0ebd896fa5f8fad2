"""PrivUnitG: pure local differential privacy for unit vectors (Asi, Feldman and Talwar 2022). For comparison."""

from quietmean.protocols.priv_unit.protocol import PrivUnitG

__all__ = ["PROTOCOL", "PrivUnitG"]

PROTOCOL = PrivUnitG
