"""What a node reports of itself as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Report: TypeAlias = Callable[[dict[str, Any]], None]
