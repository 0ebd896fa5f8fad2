"""What the site of a client chooses for itself: the file site.toml in the client's folder, which no server gets to see."""

from __future__ import annotations

from pathlib import Path

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
        faults = (fault(one["loc"], one["type"], one["msg"], _SiteFile, {}, one.get("ctx", {})) for one in error.errors())
        raise InputError(f"site file {path} is not as it should be ({'; '.join(faults)}): mend these fields") from None

    def here(stated_path: Path | None) -> Path | None:
        return None if stated_path is None else path.parent.absolute() / stated_path.expanduser()

    return SiteOptions(
        ledger=here(stated.ledger),
        no_ledger=stated.no_ledger,
        account=stated.account,
        new_account=stated.new_account,
        group=stated.group,
        policy=here(stated.policy),
        accept=stated.accept,
        yes=stated.yes,
        approval=[path.parent.absolute() / approval.expanduser() for approval in stated.approval],
        receipt=here(stated.receipt),
    )
