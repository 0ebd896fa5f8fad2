"""The system's Chromium, driven by tests that make browser runs; and axe-core."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

driver = pytest.importorskip("playwright.sync_api", reason="the browser's tests are run by make browser")

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def browser_path() -> str:
    """Of the system's Chromium, or the one that QUIETMEAN_CHROMIUM names."""
    found = os.environ.get("QUIETMEAN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not found:
        pytest.fail("no browser here: apt-get install chromium, or name one in QUIETMEAN_CHROMIUM", pytrace=False)
    return found


def axe_path() -> Path:
    found = Path(os.environ.get("QUIETMEAN_AXE", ".venv/axe/package/axe.min.js"))
    if not found.is_file():
        pytest.fail(f"axe-core is not at {found}: run make browser, which fetches it", pytrace=False)
    return found
