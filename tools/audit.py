"""Known vulnerabilities of the versions in a file of constraints, by pip-audit: run by ``make audit``.

    .venv-audit/bin/python tools/audit.py constraints.txt [OPTION OF PIP-AUDIT ...]

Exit code 1: a version has one, and each is named with the release that mends it; 2: not all versions could be looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

OPTIONS = ("-f", "json", "--progress-spinner", "off", "--no-deps", "--disable-pip", "--requirement")
ELSEWHERE = 'do it where PyPI itself can be reached, or make audit AUDIT="--vulnerability-service osv"'


def outcome(printed: str) -> tuple[int, list[str]]:
    """Exit code, and sentences, by what pip-audit printed."""
    try:
        packages = json.loads(printed)["dependencies"]
    except ValueError:
        return 2, [f"nothing was audited: no list of known vulnerabilities can be reached from here; {ELSEWHERE}"]
    harmful = [
        f"{package['name']} {package['version']} has {flaw['id']}: {', '.join(flaw['fix_versions']) or 'no release'} mends it"
        for package in packages
        for flaw in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if not skipped:
        return bool(harmful), harmful or [f"none of {len(packages)} packages has a known vulnerability"]
    count = f"{len(skipped)} of {len(packages)} packages were not audited"
    return 1 if harmful else 2, [
        *harmful,
        f"{count}: the index lists no vulnerabilities of them, {skipped[0]} for one; {ELSEWHERE}",
    ]


def main(arguments: Sequence[str]) -> int:
    program = Path(sys.executable).with_name("pip-audit")
    done = subprocess.run([str(program), *OPTIONS, *arguments], capture_output=True, text=True, check=False)
    code, sentences = outcome(done.stdout)
    print("\n".join(f"audit: {sentence}" for sentence in sentences), file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
