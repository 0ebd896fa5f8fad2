"""The page templates."""

from __future__ import annotations

from typing import Any


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
