"""Statistics, one module each, as ``STATISTIC``."""
