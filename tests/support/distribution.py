"""A Python project as if it were installed: the metadata that an installer would write, and an environment that finds it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path


def installed(project: Path, folder: Path) -> dict[str, str]:
    """Environment variables of processes that have the distribution of ``project``, whose metadata goes into ``folder``."""
    about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    info = folder / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir(parents=True)
    summary = f"Summary: {about['description']}\n"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n{summary}")
    lines = []
    for group, points in about["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(project), str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
