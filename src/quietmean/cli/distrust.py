"""``quietmean distrust``: refuse a key at this site."""

from __future__ import annotations

from quietmean.cli.console import out, print_json


def distrust_command(key: str | None = None, *, json: bool = False) -> None:
    """Refuse every invitation, entry, sealed study and roster with this key, from now on, at this site.

    Without a key it lists those that are refused.

    Parameters
    ----------
    key
        The public key, ed25519:..., or a revocation: the file KEY.revocation of quietmean keygen.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.agreement.distrust import Distrusted

    here = Distrusted()
    added = None if key is None else here.add(key)
    if json:
        print_json({"distrusted": list(here.keys()), "file": str(here.path)})
    elif added is not None:
        out.print(f"{added} is refused here from now on ({here.path})")
    else:
        for line in here.keys() or ("no key is distrusted here",):
            out.print(line)
