"""What parties of before have signed, or said yes to, is read with the digests it had and written with the same bytes.

See ``tests/golden/make.py`` for when the file may be made anew.
"""

from __future__ import annotations

import json
from pathlib import Path

from golden.agreements import stated
from golden.machines import FOLDER


def test_agreements_of_before_have_their_digests_and_bytes(tmp_path: Path) -> None:
    known = json.loads((FOLDER / "agreements.json").read_text())
    assert stated(known["documents"], tmp_path) == known["stated"]
