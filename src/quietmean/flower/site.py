"""What the site of a client chooses for itself: the file site.toml in the client's folder, which no server gets to see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from quietmean.core.errors import InputError
from quietmean.core.site_options import SiteOptions
from quietmean.core.toml_files import fault, read_tables


class _SiteFile(BaseModel):
    """Fields of :class:`SiteOptions`; paths are from the client's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ledger: Path | None = None
    no_ledger: bool = False
    account: str | None = None
    new_account: str | None = None
    group: int | None = None
    policy: Path | None = None
    accept: str | None = None
    yes: bool = False
    approval: tuple[Path, ...] = ()
    receipt: Path | None = None


def site_options(path: Path) -> SiteOptions:
    """From the file, or by default where there is none. Raises :class:`InputError` that names what is wrong in it."""
    raw = read_tables(path, "site file") if path.exists() else {}
    try:
        stated = _SiteFile.model_validate(raw)
    except ValidationError as error:
        faults = (fault(detail, _SiteFile) for detail in error.errors())
        raise InputError(f"site file {path} is not as it should be ({'; '.join(faults)}): mend these fields") from None

    def here(value: Any) -> Any:
        if isinstance(value, tuple):
            return [here(each) for each in value]
        return path.parent.absolute() / value.expanduser() if isinstance(value, Path) else value

    return SiteOptions(**{name: here(value) for name, value in stated})
