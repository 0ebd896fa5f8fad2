"""Print what an installation consists of, in CycloneDX 1.6: every package that quietmean needs, with a digest of its files.

    python tools/sbom.py [EXTRA ...] > sbom.json

The digest is that of the list of files that the installer wrote (RECORD), which has the SHA-256 of each: two installations of the
same files have the same one. Nothing is fetched. The same packages give the same document.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

ROOT = "quietmean"


def required(found: Distribution, extras: Iterable[str]) -> Iterable[tuple[str, frozenset[str]]]:
    """Names, each with its extras, that a distribution asks for with these extras of its own."""
    for one in map(Requirement, found.requires or ()):
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonical(one.name), frozenset(one.extras)


def installed(extras: Iterable[str]) -> dict[str, Distribution]:
    """All that is installed of what the package needs, by name. What a marker leaves out on this system is not there."""
    found: dict[str, Distribution] = {}
    waiting, seen = [(ROOT, frozenset(extras))], set[tuple[str, frozenset[str]]]()
    while waiting:
        name, its = waiting.pop()
        if (name, its) in seen:
            continue
        seen.add((name, its))
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        waiting += required(found[name], its)
    return dict(sorted(found.items()))


def digest(found: Distribution) -> str:
    """Digest of its list of files, but for what only this machine has."""
    lines = (found.read_text("RECORD") or "").splitlines()
    kept = sorted(line for line in lines if line.split(",")[1:2] not in ([""], []))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()


def component(name: str, found: Distribution) -> dict[str, Any]:
    metadata = found.metadata.json
    license_ = str(metadata.get("license_expression") or metadata.get("license") or "")
    return {
        "type": "library",
        "name": name,
        "version": found.version,
        "purl": f"pkg:pypi/{name}@{found.version}",
        "hashes": [{"alg": "SHA-256", "content": digest(found)}],
        **({"licenses": [{"license": {"name": license_.splitlines()[0][:80]}}]} if license_ else {}),
    }


def document(extras: Iterable[str]) -> dict[str, Any]:
    found = installed(extras)
    root = found.pop(ROOT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": ROOT, "version": root.version}},
        "components": [component(name, one) for name, one in found.items()],
    }


def main() -> int:
    print(json.dumps(document(sys.argv[1:]), indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
