"""A coordinator's command for the page with which browsers contribute to a study with a committee."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from quietmean.cli.console import output, print_json, print_lines, progress
from quietmean.cli.screens import rows
from quietmean.core.errors import InputError
from quietmean.core.readable import ShortFact
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import read_bounded
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.outcome.feasible import feasible_sealed


def form_command(study: Path, drop: str, page: Path, /, *, json: bool = False) -> None:
    """Make the page of a study: one file that asks, seals each answer in the browser, and sends it to the drop.

    The same study and drop give the same file. If the file is there, it is compared instead: exit code 2 if it is another one.

    Parameters
    ----------
    study
        The signed study. It has a committee and vouchers.
    drop
        The address of its drop, https://HOST or https://HOST:PORT.
    page
        The file of the page, which quietmean serve drop serves.
    json
        One JSON document on standard output.
    """
    from quietmean.form import form_page

    sealed = Sealed.load(study)
    if not has_committee(sealed.terms):
        raise InputError(f"{study} has no committee, and a page seals for its members. Give a study with one.")
    Distrusted().refuse(sealed.holders())
    there = page.exists()
    file = None if there else output(page, "the page", "PAGE", ends=(".html", ".htm"))
    with progress("calibrating the noise"):
        made = form_page(sealed, feasible_sealed(sealed), drop)
    if there and read_bounded(page) != made.content:
        raise InputError(f"{page} is not the page that this version makes of {study} for {drop}. Name another file.")
    if file is not None:
        file.write(made.content)
    if json:
        print_json({"page": str(page), "sha256": made.digest, "session": sealed.digest, "made": not there})
        return
    said = f"{page} is the page of {sealed.study.name!r}, " + ("exactly." if there else "for any browser.")
    facts = [ShortFact("sha256", made.digest), ShortFact("for", sealed.digest), ShortFact("sends to", drop)]
    place = urlsplit(drop)
    # Others cannot read what a machine sends to itself: all other addresses have a certificate.
    safe = place.scheme == "https"
    listen = f":{place.port or 443}" if safe else f"{place.hostname}:{place.port or 80}"
    serve = f"quietmean serve drop {quote(str(page))} --study {quote(str(study))} --listen {quote(listen)} --folder box"
    serve += " --key NAME.key" + (" --certificate FILE --private-key FILE" if safe else "")
    links = f"quietmean study vouchers INVITATION {quote(drop)} --key REGISTRAR.key"
    print_lines([said, *rows(facts), f"{'Serve':10}{serve}", f"{'Links':10}{links}"])
