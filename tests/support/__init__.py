"""Test doubles for the node (a network in memory, virtual time, fault plans, TCP proxies, the true history) and an attack."""
