"""Commands for a survey by link: the page with which browsers contribute, and the vouchers that admit who has one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from shlex import quote
from typing import Self
from urllib.parse import urlsplit

from quietmean.cli.common import Out, make_folder
from quietmean.cli.console import output, print_json, print_lines, progress
from quietmean.cli.identity import DEFAULT_KEY, load_identity
from quietmean.cli.screens import rows
from quietmean.core.errors import InputError
from quietmean.core.extensions import import_extra
from quietmean.core.file_kinds import kind_of_content, package_version
from quietmean.core.output import Output
from quietmean.core.readable import ShortFact, count_of, indented
from quietmean.form import FormPage, SignedPage, form_page, place_of
from quietmean.form.reach import is_private, only_here
from quietmean.node.net import KEY_PREFIX, Identity, public_key_bytes
from quietmean.planning.automatic import Choice
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import read_bounded
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.agreement.voucher import ENDING, MadeVouchers, Registrar, Voucher, committee_of, vouching_of
from quietmean.studies.outcome.feasible import feasible_sealed
from quietmean.studies.party.handing_in import require_drop

_REGISTRAR = "REGISTRAR.key"


def form_command(study: Path, drop: str, page: Path, /, *, key: Path = DEFAULT_KEY, json: bool = False) -> None:
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
    planned = None if there else PlannedPage.of(page, sealed, load_identity(key), "PAGE")
    with progress("calibrating the noise"):
        made = form_page(sealed, feasible_sealed(sealed), drop)
    if planned is None:
        _require_same(page, made, sealed, f"{study} for {drop}")
    else:
        planned.write(made, sealed)
    if json:
        print_json({"page": str(page), "sha256": made.digest, "session": sealed.digest, "made": not there})
        return
    whole = "the one that this version makes, and signed." if there else "for any browser."
    said = f"{page} is the page of {sealed.study.name!r}, {whole}"
    by = "the coordinator" if planned is None else f"your key {key.name}, as the coordinator's"
    signer = f"{by}, in {place_of(page)}"
    facts = [("sha256", made.digest), ("signed by", signer), ("study", sealed.digest), ("sends to", drop)]
    lines = [said, *rows([ShortFact(*fact) for fact in facts])]
    if planned is not None:
        lines += serving(study, drop, page)
        lines += _linking(drop, _registrar_key(sealed, planned.coordinator, key))
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


def _registrar_key(sealed: Sealed, coordinator: Identity, key: Path) -> str:
    """The file of the registrar's key: the coordinator's own, where that is the registrar."""
    return str(key) if is_registrar(sealed, coordinator) else _REGISTRAR


def is_registrar(sealed: Sealed, identity: Identity) -> bool:
    """Whether the owner of a key makes the vouchers of a study."""
    vouching = vouching_of(sealed.invitation)
    return vouching is not None and vouching.registrar == identity.public_key


def serving(study: Path, drop: str, page: Path) -> list[str]:
    """What is typed next, where the drop runs, and what keeps browsers from it."""
    place = urlsplit(drop)
    # Others cannot read what a machine sends to itself: all other addresses have a certificate.
    safe = place.scheme == "https"
    listen = f":{place.port or 443}" if safe else f"{place.hostname}:{place.port or 80}"
    serve = f"quietmean serve drop {quote(str(page))} --study {quote(str(study))} --listen {quote(listen)} --folder box"
    serve += " --certificate FILE --private-key FILE" if safe else ""
    lines = [f"{'Serve':10}{serve}"]
    lines += indented("", "The FILEs are the web certificate of that host and its key.") if safe else []
    if safe and is_private(place.hostname or ""):
        lines.append("- The address is private. Let this drop serve the page. From another host browsers may not send there.")
    return lines


def _linking(drop: str, registrar: str) -> list[str]:
    links = f"quietmean study vouchers INVITATION {quote(drop)} --key {quote(registrar)}"
    who = indented("", f"{_REGISTRAR} is of who admits respondents.") if registrar == _REGISTRAR else []
    return [f"{'Links':10}{links}", *who]


@dataclass(frozen=True)
class PlannedPage:
    """The files of a page, which are free, and who signs it."""

    coordinator: Identity
    signature: Output
    page: Output

    @classmethod
    def of(cls, page: Path, sealed: Sealed, coordinator: Identity, option: str = "--out") -> Self:
        """Raises :class:`InputError` where one of them cannot be written, or somebody else than the coordinator would sign."""
        own = partial(SignedPage.is_for, sealed)
        signature = output(place_of(page), "its signature", option, own=own)
        planned = cls(coordinator, signature, output(page, "the page", option, ends=(".html", ".htm")))
        SignedPage.sign(b"", sealed, coordinator, package_version())
        return planned

    def write(self, made: FormPage, sealed: Sealed) -> None:
        """The page comes last: where it is, its signature is."""
        signed = SignedPage.sign(made.content, sealed, self.coordinator, package_version())
        self.signature.write(signed.signed.to_file())
        self.page.write(made.content)


# Public keys of contributors, one a line.
_LARGEST_LIST = 1 << 27


def vouchers_command(
    invitation: Path,
    page: str = "",
    /,
    *,
    key: Path = DEFAULT_KEY,
    number: int | None = None,
    own_keys: Path | None = None,
    weight: float | None = None,
    folder: Out = None,
    qr: bool = False,
    json: bool = False,
) -> None:
    """Make the vouchers of a study with a committee: each admits one contributor whom no list names, once.

    A voucher is a file with a key that this registrar certified: hand out each to one contributor, and over a channel that nobody
    else reads, as anyone who has it can contribute in its place. The same command makes the same vouchers again, never more.

    Parameters
    ----------
    invitation
        The invitation to the study. It says how many vouchers there are, and who makes them.
    page
        The address of the study's page, from quietmean study form. Then links.csv in --out has a link for each voucher. Send each
        link over a private channel.
    key
        The registrar's private key.
    number
        How many vouchers to make, from the first on. Default: all of the study, except those already in --out for contributors'
        own keys.
    own_keys
        Make vouchers for contributors' own keys instead. Give a file with their public keys, from quietmean key new, one a
        line. Such a voucher holds no key, and only the key's owner can use it.
    weight
        The largest weight of a contribution with one of these vouchers. Default: the study's.
    folder
        Where to write the vouchers. Default: INVITATION.vouchers.
    qr
        Also write a QR code of each voucher (SVG), or of its link, to print in letters. It is as secret as the voucher.
    json
        One JSON document on standard output.
    """
    invitation_terms = Invitation.load(invitation)
    registrar = Registrar.of(invitation_terms, load_identity(key))
    terms = committee_of(invitation_terms.terms)
    largest = None if terms is None else terms.largest_weight
    if weight is not None and largest is not None and weight > largest:
        raise InputError(f"a voucher's weight is {weight:g}, and the study's largest {largest:g}. Give no more than that.")
    if own_keys is not None and number is not None:
        raise InputError("--number says how many keys this registrar makes, and --own-keys has its own. Leave one of them out.")
    place = folder or vouchers_of(invitation)
    there = _there(place, invitation_terms.digest)
    if own_keys is None:
        of_own_keys = sum(name.startswith("own-") for name in there)
        vouchers = registrar.make(registrar.number - of_own_keys if number is None else number, weight)
    else:
        vouchers = registrar.certify(_keys_in(own_keys), weight)
    count = len({voucher.key for voucher in there.values()} | {voucher.key for voucher in vouchers.vouchers.values()})
    if count > registrar.number:
        raise InputError(
            f"that would be {count_of(count, 'voucher')} with those in {place}, and the study has {registrar.number}"
            ". Make no more, members do not take them."
        )
    planned = PlannedVouchers.of(vouchers, place, page, qr=qr)
    planned.write()
    if json:
        names = [str(place / name) for name in vouchers.files]
        print_json(
            {"vouchers": names, "registrar": registrar.public_key, "invitation": invitation_terms.digest, "of": registrar.number}
        )
        return
    to = (
        "each to one contributor, unseen by others. Anyone who has it can contribute in its place."
        if own_keys is None
        else "each back. It goes beside its key, as NAME.voucher beside NAME.key."
    )
    made = f"{count_of(len(vouchers.files), 'voucher')} of {registrar.number} in {place}."
    facts = [ShortFact("registrar", registrar.public_key), ShortFact("invitation", invitation_terms.digest)]
    facts += [ShortFact("links", str(planned.links))] if planned.links else []
    print_lines([made, *rows(facts), *indented("Hand", f"{to}{only_here(page)}")])


def vouchers_of(invitation: Path) -> Path:
    """The folder of the vouchers to an invitation, where no other one is named."""
    return invitation.with_suffix(".vouchers")


@dataclass(frozen=True)
class PlannedVouchers:
    """What a registrar hands out: the ``contents`` of files in a folder; with a page ``links``, the table of those to it."""

    folder: Path
    contents: dict[Output, bytes] = field(repr=False)
    links: Path | None

    @classmethod
    def of(cls, made: MadeVouchers, folder: Path, page: str, *, qr: bool) -> Self:
        """Raises :class:`InputError` for no address of a page, and for vouchers of which nobody can make links."""
        links = _links(page, made.fragments) if page else {}
        contents = {Output(folder / name, "the voucher", private=True): content for name, content in made.files.items()}
        for name, content in made.files.items() if qr else ():
            picture = Output(folder / f"{name}.svg", "the QR code", private=True, ends=(".svg",))
            contents[picture] = _qr(links.get(name, "").encode() or content)
        table = folder / "links.csv" if links else None
        if table is not None:
            text = "".join(f"{name},{link}\n" for name, link in {"voucher": "link", **links}.items())
            contents[Output(table, "the links", private=True, ends=(".csv",))] = text.encode()
        return cls(folder, contents, table)

    def require_free(self) -> None:
        """Make the folder. Raises :class:`InputError` for a file that may not be written."""
        make_folder(self.folder)
        for planned, content in self.contents.items():
            planned.require_free(content)

    def write(self) -> None:
        """Write all of them, or none where one may not be written. Raises :class:`InputError`."""
        self.require_free()
        for planned, content in self.contents.items():
            planned.write(content)


def _links(page: str, fragments: dict[str, str]) -> dict[str, str]:
    """The links to a page, by the names of vouchers. Raises :class:`InputError` for no address of a page."""
    require_drop(page)
    if not fragments:
        raise InputError("a link holds a key that this registrar made, and --own-keys has others. Leave the page out.")
    return {name: f"{page}#{fragment}" for name, fragment in fragments.items()}


def _qr(content: bytes) -> bytes:
    """A picture (SVG) of these bytes. Raises :class:`InputError` without the extra."""
    segno = import_extra("segno", "qr", "a QR code")
    picture = BytesIO()
    segno.make(content, error="m", micro=False).save(picture, kind="svg", scale=4, title="A voucher")
    return picture.getvalue()


def _there(folder: Path, invitation: str) -> dict[str, Voucher]:
    """The vouchers for an invitation that are in a folder, by the names of their files."""
    listed = {path.name: Voucher.of_key(path) for path in sorted(folder.glob(f"*{ENDING}"))}
    return {name: voucher for name, voucher in listed.items() if voucher is not None and voucher.invitation == invitation}


def _keys_in(path: Path) -> list[str]:
    content = read_bounded(path, _LARGEST_LIST)
    if (kind := kind_of_content(content)) is not None:
        raise InputError(
            f"file {path} holds {kind.words}, not public keys. Give a file with one key a line.{kind.advice(str(path))}"
        )
    lines = content.decode("utf-8", errors="replace").splitlines()
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise InputError(f"file {path} has no public key. Write one a line, as quietmean key new shows it.")
    for line, key in enumerate(keys, 1):
        try:
            public_key_bytes(key)
        except InputError as error:
            # What stands there may be private.
            why = str(error) if key.startswith(KEY_PREFIX) else f"it does not begin with {KEY_PREFIX}"
            raise InputError(
                f"line {line} of {path} is not a public key ({why}). Copy each as quietmean key new printed it."
            ) from None
    if len(set(keys)) < len(keys):
        raise InputError(f"file {path} has a key twice. Name each key once, it gets one voucher.")
    return keys


@dataclass(frozen=True)
class SurveyByLink:
    """What a coordinator makes beside a sealed study that browsers answer: a page, and links where it is the registrar."""

    drop: str
    made: FormPage = field(repr=False)
    page: PlannedPage = field(repr=False)
    sealed: Sealed = field(repr=False)
    vouchers: PlannedVouchers | None = field(repr=False)

    @classmethod
    def of(cls, sealed: Sealed, choice: Choice, coordinator: Identity, drop: str, places: tuple[Path, Path]) -> Self:
        """``places``: of the invitation, beside which vouchers are, and of the signed study, beside which the page is.

        Raises :class:`InputError` for a study that no browser can answer, and for a file that may not be written.
        """
        invitation, study = places
        if vouching_of(sealed.invitation) is None:
            raise InputError("the study has no vouchers, and --drop is for who answers by one. Leave it out.")
        planned = PlannedPage.of(study.with_suffix(".html"), sealed, coordinator)
        made, vouchers = form_page(sealed, choice, drop), None
        if is_registrar(sealed, coordinator):
            registrar = Registrar.of(sealed.invitation, coordinator)
            vouchers = PlannedVouchers.of(registrar.make(registrar.number, None), vouchers_of(invitation), drop, qr=False)
            vouchers.require_free()
        return cls(drop, made, planned, sealed, vouchers)

    def write(self) -> None:
        """Each of them can be made again, by the command of its own."""
        if self.vouchers is not None:
            self.vouchers.write()
        self.page.write(self.made, self.sealed)

    def to_json(self) -> dict[str, str]:
        """Where they are."""
        links = {} if self.vouchers is None else {"links": str(self.vouchers.links)}
        return {"page": str(self.page.page.path), **links}

    def lines(self, study: Path) -> list[str]:
        """What was made, and what is typed next."""
        page = self.page.page.path
        lines = indented("Page", f"{page}, with your signature in {place_of(page).name}.")
        if self.vouchers is None:
            lines += _linking(self.drop, _REGISTRAR)
        else:
            lines += indented("Links", f"{self.vouchers.links}: send each to one person, unseen by others.{only_here(self.drop)}")
        return [*lines, *serving(study, self.drop, page)]
