"""``quietmean words``: a sealed study in eight words."""

from __future__ import annotations

from pathlib import Path

from quietmean.cli.console import out, print_json
from quietmean.cli.seal import about, show


def words_command(
    study: str,
    *,
    key: Path | None = None,
    store: Path | None = None,
    json: bool = False,
) -> None:
    """Show the words of a sealed study, to be compared with other parties before anybody joins.

    Parameters
    ----------
    study
        The sealed study.
    key
        This party's private key: makes sure that its own entry is in the study as it signed it.
    store
        The folder of this study's keys, as for accept; by default beside the private key.
    json
        One JSON document on standard output.
    """
    from quietmean.studies.agreement.distrust import Distrusted
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.party import own_keys

    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    own = None if key is None else own_keys(sealed, key, store).entry.name
    document = {**about(sealed), "own_entry": own}
    if json:
        print_json(document)
        return
    show(document)
    if own is None:
        out.print("Your own entry was not looked for: give --key and --store as for accept.")
    else:
        out.print(f"Your own entry, {own!r}, is in it as you signed it.")
