"""One party hands in its file from Python."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Unpack

from quietmean.api import rooms
from quietmean.api.joining import KeyKeywords, identity_at, silent_person
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call
from quietmean.core.output import Output
from quietmean.core.site_options import ConsentKeywords, SiteOptions, path_of


class ContributionKeywords(ConsentKeywords, KeyKeywords, total=False):
    """What a site chooses for itself where its party has no node."""


@python_call
def contribute(
    study: str | Path,
    key: str | Path = "quietmean.key",
    *,
    data: rooms.data.Source,
    out: str | Path,
    drop: str | None = None,
    store: str | Path | None = None,
    **site: Unpack[ContributionKeywords],
) -> rooms.handing_in.Delivered:
    """Write this party's one contribution to a sealed study, with ``data``, a path or a data frame, to the file ``out``.

    As ``quietmean contribute`` does, whose options those of the ``site`` are. ``drop``: https://HOST to which it is sent besides,
    whose signed receipt is then beside it. The same data give the same file again. Raises
    :class:`InputError` for other data than before, for what policy or budget refuse, and for another file that is there, and
    :class:`ProtocolFailure` where the drop does not acknowledge it.
    """
    sealed, path = rooms.sealed.Sealed.load(Path(study)), Path(out)
    rooms.study_keys.Distrusted().refuse(sealed.holders())
    if drop is not None:
        rooms.handing_in.require_drop_for(sealed, drop)
    identity = identity_at(Path(key), site.get("passphrase"))
    keys = rooms.handing_in.contributor_keys(sealed, identity, Path(key), path_of(store))
    rooms.handing_in.own_place(sealed, identity, keys, Path(key))
    Output(path, "the contribution", "out", own=partial(rooms.handing_in.is_contribution, None)).require_free()
    name = (
        site.get("account") or site.get("new_account") or (rooms.data.account_name(data) if isinstance(data, str | Path) else "")
    )
    if not name and not site.get("no_ledger"):
        raise InputError("a data frame does not say which data set it is of: give account, or no_ledger=True")
    handed = rooms.handing_in.hand_in(sealed, identity, keys, data, name or "data", SiteOptions.of(site), silent_person(None))
    own = partial(rooms.handing_in.is_contribution, handed.contribution.digest)
    Output(path, "the contribution", "out", own=own).write(handed.contribution.to_file())
    if drop is not None:
        rooms.handing_in.hand_over(drop, sealed, identity.public_key, handed.contribution, path)
    return handed
