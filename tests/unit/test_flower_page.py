"""The page about Flower, followed as it stands: the run goes to the SuperLink that was started, and clients have their data."""

from __future__ import annotations

import re
import shlex
import tomllib

from support.flower_runs import APP
from support.pages import DOCS, blocks

PAGE = (DOCS / "models" / "flower.md").read_text(encoding="utf-8")


def words(program: str) -> list[str]:
    (line,) = re.findall(rf"^    {program} .*$", PAGE, re.MULTILINE)
    return shlex.split(line)


def test_the_run_goes_to_the_superlink_that_was_started() -> None:
    """Flower writes a configuration whose ``local`` starts one of its own."""
    (config,) = blocks("models/flower.md", "toml")
    ((name, place),) = tomllib.loads(config)["superlink"].items()
    run, node = words("flwr"), words("flower-supernode")
    assert run[1:4] == ["run", "examples/flower", name]
    assert name != "local"
    assert node[node.index("--superlink") + 1] == place["address"]
    assert {"--insecure"} <= set(node) & set(words("flower-superlink"))
    assert place["insecure"] is True


def test_what_the_app_reads_is_named() -> None:
    for file in re.findall(r'/ "([\w.]+)"\)', (APP / "quiet" / "client.py").read_text(encoding="utf-8")):
        assert f"`{file}`" in PAGE
    config = tomllib.loads((APP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    given = dict(re.findall(r"(\w+)='(/[^']*)'", words("flwr")[-1]))
    # A relative path would be one of the server app's own folder.
    assert {name for name, value in config.items() if str(value).endswith(".json")} == set(given)
