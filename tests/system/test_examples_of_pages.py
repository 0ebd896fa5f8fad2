"""What examples in pages may use: nothing that this user has, neither a policy nor a ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLLECT = """
import pytest

class Collected:
    def pytest_collection_finish(self, session):
        self.items = session.items

collected = Collected()
pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "README.md", "docs"], plugins=[collected])
without = [item.nodeid for item in collected.items if "own_folders" not in item.fixturenames]
print("without folders of their own:", len(collected.items), without)
"""


def test_examples_of_pages_use_nothing_of_this_user() -> None:
    run = subprocess.run([sys.executable, "-c", COLLECT], cwd=ROOT, capture_output=True, text=True, check=True)
    count, without = run.stdout.splitlines()[-1].removeprefix("without folders of their own: ").split(" ", 1)
    assert int(count) > 20
    assert without == "[]"
