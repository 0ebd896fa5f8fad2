"""On how many examples a property is tried: on all in ``make test-all``, on a third in every run, in a third of the time."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = "thorough"
# Fewer show next to nothing.
_LEAST = 15


def examples(thorough: int) -> int:
    """Of ``thorough`` many: all under the profile of that name, a third (at least 15) otherwise."""
    if settings.get_current_profile_name() == THOROUGH:
        return thorough
    return min(thorough, max(thorough // 3, _LEAST))
