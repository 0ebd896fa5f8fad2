"""Contents of messages that are bytes of a protocol's own."""

from __future__ import annotations


class ContentError(Exception):
    """A content that is not exactly of its form, or a request that must be refused; its text states why."""
