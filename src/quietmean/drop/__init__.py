"""A drop: a small service that takes contributions to a committee and keeps them in a folder. It is trusted for nothing."""

from quietmean.drop.app import Drop, DropLimits, DropServer
from quietmean.drop.box import DropBox

__all__ = ["Drop", "DropBox", "DropLimits", "DropServer"]
