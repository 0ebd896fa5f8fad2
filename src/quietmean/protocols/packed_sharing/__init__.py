"""Packed secret sharing among equals: the sum with near-central noise, nobody collects, and the guarantee is known beforehand."""
