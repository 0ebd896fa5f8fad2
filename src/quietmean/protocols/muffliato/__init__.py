"""Muffliato: local noise once, then gossip on a fixed graph (Cyffers, Even, Bellet and Massoulié 2022). For comparison."""

from quietmean.protocols.muffliato.party import MuffliatoParameters
from quietmean.protocols.muffliato.protocol import Muffliato

__all__ = ["PROTOCOL", "Muffliato", "MuffliatoParameters"]

PROTOCOL = Muffliato
