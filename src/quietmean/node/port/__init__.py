"""A port that several studies of one site share: its process looks whom a connection asks for, and hands it over unread."""

from quietmean.node.port.hello import MOST, Undecided, server_name
from quietmean.node.port.server import PortLimits, PortServer

__all__ = ["MOST", "PortLimits", "PortServer", "Undecided", "server_name"]
