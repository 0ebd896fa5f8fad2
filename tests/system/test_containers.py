"""The image, really run: an ordinary user on a file system that cannot be written, and a rehearsal of five sites and a relay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = os.environ.get("QUIETMEAN_IMAGE", "")
BUILDER = shutil.which(os.environ.get("QUIETMEAN_BUILDER", "podman")) or shutil.which("docker") or ""
SITES = ("ada", "bob", "cyd", "dan", "eve")
HARDENED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IMAGE or not BUILDER, reason="make image builds the image and names it in QUIETMEAN_IMAGE"),
]


def said(*arguments: str | Path, code: int = 0, timeout: float = 600) -> str:
    """Standard output of a command that ends with this exit code."""
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == code, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_image_has_its_version_and_is_of_an_ordinary_user() -> None:
    assert said(BUILDER, "run", "--rm", *HARDENED, IMAGE, "--version").strip() == os.environ["QUIETMEAN_IMAGE_VERSION"]
    looked = (
        "import os; status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines());"
        "print(os.getuid(), os.getcwd(), int(status['CapEff'], 16), status['NoNewPrivs'], os.access('/study', os.W_OK));"
        "open('/opt/quietmean/new', 'w')"
    )
    assert said(BUILDER, "run", "--rm", *HARDENED, "-v", "/study", "--entrypoint", "python", IMAGE, "-c", looked, code=1) == (
        "10001 /study 0 1 True\n"
    )


@pytest.fixture
def rehearsal() -> Iterator[list[str]]:
    """The compose command of a project of its own, whose containers and volumes are removed in the end."""
    tool = [found] if (found := shutil.which(f"{Path(BUILDER).name}-compose")) else [BUILDER, "compose"]
    compose = [*tool, "-p", f"quietmean-rehearsal-{os.getpid()}", "-f", str(DEPLOY / "compose.yaml")]
    yield compose
    subprocess.run([*compose, "down", "-v"], capture_output=True, check=False, timeout=300)


def test_five_sites_and_a_relay_have_one_result(rehearsal: list[str]) -> None:
    """Three are dialled, two meet the others at the relay; each has its own volume, and none can write outside of it."""
    said(*rehearsal, "up", "-d")
    project = rehearsal[rehearsal.index("-p") + 1]
    receipts, until = {}, time.monotonic() + 900
    for site in SITES:
        # As root: what a volume holds is a folder of this machine.
        path = (
            Path(said(BUILDER, "volume", "inspect", "--format", "{{.Mountpoint}}", f"{project}_{site}").strip()) / "receipt.json"
        )
        name = container(project, site)
        while not path.exists():
            assert time.monotonic() < until, subprocess.run([BUILDER, "logs", name], capture_output=True, text=True, check=False)
            time.sleep(1)
        receipts[site] = json.loads(path.read_bytes())
        assert json.loads(said(BUILDER, "inspect", name))[0]["HostConfig"]["ReadonlyRootfs"]
    assert len({json.dumps(receipt["result"]["statistics"], sort_keys=True) for receipt in receipts.values()}) == 1
    # Two were dialled by nobody: without the relay there would be no result of all five.
    assert all(receipt["inputs"] == [0, 1, 2, 3, 4] for receipt in receipts.values())
    eve = f"{project}_eve:/study"
    assert "epsilon" in said(BUILDER, "run", "--rm", *HARDENED, "-v", eve, IMAGE, "verify", "receipt", "receipt.json")


def container(project: str, site: str) -> str:
    """The container of a site, whichever way the tool joins its names."""
    listed = said(BUILDER, "ps", "-a", "--format", "{{.Names}}").split()
    return next(name for name in listed if name.replace("_", "-") == f"{project}-{site}-1".replace("_", "-"))
