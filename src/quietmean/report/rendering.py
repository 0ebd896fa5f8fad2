"""The page templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quietmean.core.output import Output

# Within so many bytes a page says what it is.
_HEAD = 4096


def page_at(path: Path, kind: str, whose: str, force: bool = False) -> Output:
    """Where a page of this ``kind`` goes; ``whose``: a digest of what it shows, of which it takes the place of an earlier page.

    With ``force`` it takes that of any page of the kind.
    """
    head = f'<meta name="generator" content="quietmean {kind}">\n<meta name="quietmean-whose" content="'.encode()
    return Output(
        path,
        f"the {kind}",
        "--report" if kind == "certificate" else "",
        own=lambda content: bool(whose) and head + whose.encode() + b'"' in content[:_HEAD],
        kind=lambda content: head in content[:_HEAD],
        force=force,
    )


def render_template(name: str, **content: Any) -> str:
    """A packaged template filled in; everything is escaped, and a missing field is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("quietmean.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(**content)
