"""The sources of a survey's pages, and how they are put into one file whose policy names all that may run or show."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources


def source(name: str) -> str:
    """The text of a file beside this one."""
    return resources.files("quietmean.form").joinpath(name).read_text(encoding="utf-8")


def source_hash(text: str) -> str:
    """The SHA-256 of a script or style, as a policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def policy_text(parts: Mapping[str, str]) -> str:
    """A Content-Security-Policy with these directives."""
    return "; ".join(f"{name} {value}" for name, value in parts.items())


def page_text(policy: str, title: str, content: str, scripts: str = "") -> str:
    """A whole page with the one style of all: what is in it, and ``scripts`` below that."""
    fields = {"policy": policy, "title": title, "style": source("form.css"), "content": content, "scripts": scripts}
    return _filled(source("page.html"), fields)


def _filled(template: str, fields: Mapping[str, str]) -> str:
    """A template with each ``{name}`` replaced, once: what is put in is not looked at again."""
    return re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], template)
