"""Where this user keeps settings, lasting data and caches of this site: as each system has it."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_NAME = "quietmean"


def configuration_folder() -> Path:
    """The folder for the policy and the keys that the site distrusts; on Linux ``~/.config/quietmean``, or in XDG_CONFIG_HOME."""
    return platformdirs.user_config_path(_NAME, appauthor=False)


def data_folder() -> Path:
    """The folder for the ledger that is taken where none is named; on Linux ``~/.local/share/quietmean``, or in XDG_DATA_HOME."""
    return platformdirs.user_data_path(_NAME, appauthor=False)


def cache_folder() -> Path:
    """The folder for files that can be made again; on Linux ``~/.cache/quietmean``, or in XDG_CACHE_HOME."""
    return platformdirs.user_cache_path(_NAME, appauthor=False)
