"""A coordinator's command for the page with which browsers contribute to a study with a committee."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

from quietmean.cli.console import output, print_json, print_lines, progress
from quietmean.cli.identity import load_identity
from quietmean.cli.screens import rows
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import package_version
from quietmean.core.readable import ShortFact, indented
from quietmean.form import FormPage, SignedPage, form_page, place_of
from quietmean.node.net import Identity
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import read_bounded
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.outcome.feasible import feasible_sealed

_REGISTRAR = "REGISTRAR.key"


def form_command(study: Path, drop: str, page: Path, /, *, key: Path = Path("quietmean.key"), json: bool = False) -> None:
    """Make the page of a study: one file that asks, seals each answer in the browser, and sends it to the drop.

    The coordinator signs its SHA-256 in PAGE.signed. The same study and drop give the same files. If PAGE is there, it is
    compared instead: exit code 2 if it is another one, or if the coordinator did not sign it.

    Parameters
    ----------
    study
        The signed study. It has a committee and vouchers.
    drop
        The address of its drop, https://HOST or https://HOST:PORT.
    page
        The file of the page, which quietmean serve drop serves.
    key
        The coordinator's private key. To compare takes none.
    json
        One JSON document on standard output.
    """
    sealed = Sealed.load(study)
    if not has_committee(sealed.terms):
        raise InputError(f"{study} has no committee, and a page seals for its members. Give a study with one.")
    Distrusted().refuse(sealed.holders())
    there = page.exists()
    signing, files = None, []
    if not there:
        # The page comes last: where it is, its signature is.
        own = partial(SignedPage.is_for, sealed)
        files = [
            output(place_of(page), "its signature", "PAGE", own=own),
            output(page, "the page", "PAGE", ends=(".html", ".htm")),
        ]
        signing = load_identity(key)
        SignedPage.sign(b"", sealed, signing, package_version())
    with progress("calibrating the noise"):
        made = form_page(sealed, feasible_sealed(sealed), drop)
    if signing is None:
        _require_same(page, made, sealed, f"{study} for {drop}")
    else:
        signature = SignedPage.sign(made.content, sealed, signing, package_version())
        for file, content in zip(files, (signature.signed.to_file(), made.content), strict=True):
            file.write(content)
    if json:
        print_json({"page": str(page), "sha256": made.digest, "session": sealed.digest, "made": not there})
        return
    whole = "the one that this version makes, and signed." if there else "for any browser."
    said = f"{page} is the page of {sealed.study.name!r}, {whole}"
    by = "the coordinator" if signing is None else f"your key {key.name}, as the coordinator's"
    signer = f"{by}, in {place_of(page)}"
    facts = [("sha256", made.digest), ("signed by", signer), ("study", sealed.digest), ("sends to", drop)]
    lines = [said, *rows([ShortFact(*fact) for fact in facts])]
    if not there:
        lines += _next(study, drop, page, _registrar_key(sealed, signing, key))
        lines += indented("Count", _counting(sealed, drop))
    print_lines(lines)


def _counting(sealed: Sealed, drop: str) -> str:
    terms = sealed.study.committee
    least = None if terms is None else terms.minimum
    return f"{drop.rstrip('/')}/status says how many answered{'' if least is None else f', of at least {least:,}'}."


def _require_same(page: Path, made: FormPage, sealed: Sealed, of: str) -> None:
    """Raises :class:`InputError` for a file that is another page, with what its coordinator signed."""
    content = read_bounded(page)
    if content == made.content:
        SignedPage.beside(page, content, sealed)
        return
    try:
        there = FormPage.of_file(content)
    except InputError as error:
        raise InputError(f"{page}: {error}") from None
    if there.sends_to != made.sends_to:
        raise InputError(f"{page} sends to {there.sends_to}, and not to {made.sends_to}. Give the address that respondents have.")
    try:
        signed = SignedPage.beside(page, content, sealed)
    except InputError:
        signed = None
    if signed is not None and signed.version != package_version():
        raise InputError(
            f"the coordinator signed {page}, and version {signed.version} of quietmean made it. Compare it with that version: "
            f"this is {package_version()}."
        )
    raise InputError(f"{page} is not the page that this version makes of {of}. Trust it no more, or name another file.")


def _registrar_key(sealed: Sealed, signing: Identity | None, key: Path) -> str:
    """The file of the registrar's key: the coordinator's own, where that is the registrar."""
    terms = sealed.study.committee
    own = signing is not None and terms is not None and terms.registrar == signing.public_key
    return str(key) if own else _REGISTRAR


def _next(study: Path, drop: str, page: Path, registrar: str) -> list[str]:
    """What is typed next, and what keeps browsers from this drop."""
    place = urlsplit(drop)
    # Others cannot read what a machine sends to itself: all other addresses have a certificate.
    safe = place.scheme == "https"
    listen = f":{place.port or 443}" if safe else f"{place.hostname}:{place.port or 80}"
    serve = f"quietmean serve drop {quote(str(page))} --study {quote(str(study))} --listen {quote(listen)} --folder box"
    serve += " --key NAME.key" + (" --certificate FILE --private-key FILE" if safe else "")
    links = f"quietmean study vouchers INVITATION {quote(drop)} --key {quote(registrar)}"
    keys = "NAME.key is a key of who runs the drop (quietmean key new)."
    keys += " The FILEs are its web certificate and the key of that." if safe else ""
    keys += f" {_REGISTRAR} is of who admits respondents." if registrar == _REGISTRAR else ""
    lines = [f"{'Serve':10}{serve}", f"{'Links':10}{links}", *indented("Keys", keys)]
    if safe and _is_private(place.hostname or ""):
        lines.append("- The address is private. Let this drop serve the page. From another host browsers may not send there.")
    return lines


def _is_private(host: str) -> bool:
    """Whether an address is of a network of one's own. Names are not looked up."""
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan", ".home.arpa"))
