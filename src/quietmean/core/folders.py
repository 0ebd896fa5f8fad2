"""Folders: how one is made, and where this user keeps settings and lasting data, as each system has it."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from quietmean.core.errors import InputError, as_sentence, reason_of
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import make_folders

_NAME = "quietmean"


def require_folder(folder: Path, remedy: str, mode: int = 0o777) -> None:
    """Make a folder that is missing, durably. Raises :class:`InputError` with the ``remedy``, and :class:`StorageError`."""
    try:
        make_folders(folder, mode)
    except OSError as error:
        refuse_outage(error, folder)
        raise InputError(f"folder {folder} cannot be made ({reason_of(error)}). {as_sentence(remedy)}") from None


def configuration_folder() -> Path:
    """The folder for the policy and the keys that the site distrusts; on Linux ``~/.config/quietmean``, or in XDG_CONFIG_HOME."""
    return platformdirs.user_config_path(_NAME, appauthor=False)


def data_folder() -> Path:
    """The folder for the ledger that is taken where none is named; on Linux ``~/.local/share/quietmean``, or in XDG_DATA_HOME."""
    return platformdirs.user_data_path(_NAME, appauthor=False)
