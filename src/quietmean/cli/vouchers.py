"""``quietmean vouchers``: a registrar lets contributors into a study whom no list names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from quietmean.cli.common import Out
from quietmean.cli.console import out, print_json
from quietmean.cli.identity import load_identity
from quietmean.cli.opened import make_folder
from quietmean.core.errors import InputError
from quietmean.core.extras import import_extra
from quietmean.core.readable import count_of

if TYPE_CHECKING:
    from quietmean.studies.agreement.voucher import Voucher

# Public keys of contributors, one a line.
_LARGEST_LIST = 1 << 27


def vouchers_command(
    invitation: Path,
    *,
    key: Path = Path("quietmean.key"),
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
        The invitation to the study, which says how many vouchers there are, and whose.
    key
        The registrar's private key.
    number
        So many, from the first on; by default all that the study has, without those in --out for contributors' own keys.
    own_keys
        Certify these instead: a file with the public keys that contributors made with quietmean keygen, one a line. Their
        vouchers hold no key, and nobody but they can contribute with them.
    weight
        The largest weight of a contribution with one of these vouchers; by default the study's.
    folder
        Where to write them; by default INVITATION.vouchers.
    qr
        Also a picture of each (SVG) whose QR code is the voucher's text, to be printed in letters; as secret as the voucher.
    json
        One JSON document on standard output.
    """
    from quietmean.core.output import Output
    from quietmean.studies.agreement.invitation import Invitation
    from quietmean.studies.agreement.voucher import Registrar, committee_of

    invitation_terms = Invitation.load(invitation)
    registrar = Registrar.of(invitation_terms, load_identity(key))
    terms = committee_of(invitation_terms.terms)
    largest = None if terms is None else terms.largest_weight
    if weight is not None and largest is not None and weight > largest:
        raise InputError(f"a voucher's weight is {weight:g}, and the study's largest {largest:g}: give no more than that")
    if own_keys is not None and number is not None:
        raise InputError("--number says how many keys this registrar makes, and --own-keys has its own: leave one of them out")
    place = folder or invitation.with_suffix(".vouchers")
    there = _there(place, invitation_terms.digest)
    if own_keys is None:
        others = sum(name.startswith("own-") for name in there)
        vouchers = registrar.make(registrar.number - others if number is None else number, weight)
    else:
        vouchers = registrar.certify(_keys_in(own_keys), weight)
    count = len({voucher.key for voucher in there.values()} | {voucher.key for voucher in vouchers.vouchers.values()})
    if count > registrar.number:
        raise InputError(
            f"that would be {count_of(count, 'voucher')} with those in {place}, and the study has "
            f"{registrar.number}: members take no more"
        )
    outputs = {Output(place / name, "the voucher", private=True): content for name, content in vouchers.files.items()}
    pictures = {
        Output(place / f"{name}.svg", "the QR code", private=True): _qr(content) for name, content in vouchers.files.items() if qr
    }
    outputs |= pictures
    make_folder(place)
    for planned, content in outputs.items():
        planned.require_free(content)
    for planned, content in outputs.items():
        planned.write(content)
    if json:
        names = [str(output.path) for output in outputs if output not in pictures]
        print_json(
            {"vouchers": names, "registrar": registrar.public_key, "invitation": invitation_terms.digest, "of": registrar.number}
        )
        return
    out.print(
        f"{count_of(len(vouchers.files), 'voucher')} of {registrar.number} in {place}, by {registrar.public_key}",
    )
    if own_keys is None:
        out.print("Hand each to one contributor, unseen by others: anyone who has it can contribute in its place.")
    else:
        out.print("Hand each back: it goes beside its key, as NAME.voucher beside NAME.key.")


def _qr(content: bytes) -> bytes:
    """A picture (SVG) of these bytes. Raises :class:`InputError` without the extra."""
    from io import BytesIO

    segno = import_extra("segno", "qr", "a QR code")
    picture = BytesIO()
    segno.make(content, error="m", micro=False).save(picture, kind="svg", scale=4, title="A voucher")
    return picture.getvalue()


def _there(folder: Path, invitation: str) -> dict[str, Voucher]:
    """The vouchers for an invitation that are in a folder, by the names of their files."""
    from quietmean.studies.agreement.voucher import ENDING, Voucher

    listed = {path.name: Voucher.of_key(path) for path in sorted(folder.glob(f"*{ENDING}"))}
    return {name: voucher for name, voucher in listed.items() if voucher is not None and voucher.invitation == invitation}


def _keys_in(path: Path) -> list[str]:
    from quietmean.node.net import public_key_bytes
    from quietmean.studies.agreement.signed import read_bounded

    lines = read_bounded(path, _LARGEST_LIST).decode("utf-8", errors="replace").splitlines()
    keys = [line.strip() for line in lines if line.strip()]
    if not keys:
        raise InputError(f"file {path} has no public key: write one a line, as quietmean keygen shows it")
    for line, key in enumerate(keys, 1):
        try:
            public_key_bytes(key)
        except InputError as error:
            raise InputError(f"line {line} of {path}: {error}") from None
    if len(set(keys)) < len(keys):
        raise InputError(f"file {path} has a key twice: a key gets one voucher")
    return keys
