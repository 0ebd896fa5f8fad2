"""Modules that a party uses between its charge and its receipt, imported before it pays: memory that runs out does so before."""

from __future__ import annotations

from importlib import import_module
from typing import Final

# What imports itself late: for start-up, for names of hosts, for certificates, for the answers. A test holds this to what runs.
USED_AFTER_THE_CHARGE: Final = (
    "concurrent.futures.thread",
    "cryptography.hazmat.backends.openssl.backend",
    "encodings.cp437",
    "encodings.idna",
    "importlib.readers",
    "quietmean.statistics.tidy_tables",
    "quietmean.transcript.symbols",
    "scipy.sparse.csgraph",
)


def import_ahead() -> None:
    """Import them. Raises what an import raises where no memory is left; nothing was paid or sent then."""
    for module in USED_AFTER_THE_CHARGE:
        import_module(module)
