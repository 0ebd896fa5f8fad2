"""Commands of studies by file: send, study combine, and show what a committee opened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from cyclopts import Parameter

from quietmean.cli.answers import Pages, ResultScreen, near, no_answer_shown, saved_text, show_receipt
from quietmean.cli.common import Out, execution_or_newest, make_folder
from quietmean.cli.console import (
    choice_document,
    out,
    output,
    output_options,
    print_json,
    print_lines,
    tell_notes,
    tell_owner,
    warn,
)
from quietmean.cli.identity import AtTerminal, load_identity
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.cli.screens import rows
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.file_kinds import (
    FileKind,
    kind_of_content,
    kind_of_file,
    package_version,
    read_json,
    refuse_other,
    require_kind_of_store,
)
from quietmean.core.output import Output, json_object, require_apart
from quietmean.core.readable import indented
from quietmean.core.site_options import ConsentOptions
from quietmean.form import result_page
from quietmean.node.monitor import now
from quietmean.node.secrecy import forbid_core_dumps, forbid_tracing
from quietmean.protocols.committee.result import check_result, merge_results, read_result
from quietmean.protocols.mechanism import vector_bytes
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.sealed import Sealed, sealed_with_committee
from quietmean.studies.agreement.signed import read_bounded
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.data import account_name
from quietmean.studies.outcome.dropped import DropFiles
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.opened_by_committee import OpenedStudy, names_of
from quietmean.studies.outcome.outcome import StudyRun, receipt_at, without_answer
from quietmean.studies.party import Observers, Person, file_name
from quietmean.studies.party.approval import screen_of
from quietmean.studies.party.by_file import combine
from quietmean.studies.party.handing_in import contributor_keys, hand_in, hand_over, is_contribution, own_place, require_drop_for

if TYPE_CHECKING:
    from quietmean.node import Identity
    from quietmean.planning.automatic import Choice
    from quietmean.statistics import Encoded
    from quietmean.studies import StudyOutcome
    from quietmean.studies.party.handing_in import Delivered


# How a study without an answer is paid for by who contributed.
CONTRIBUTIONS_STAY = "by every contribution"


class Opened(Protocol):
    """A result with what is known of the files that it came from."""

    @property
    def outcome(self) -> StudyOutcome: ...
    @property
    def headline(self) -> str: ...
    @property
    def notes(self) -> Sequence[str]: ...
    def to_json(self) -> dict[str, Any]: ...


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OpenedOptions:
    """Where it is written.

    Parameters
    ----------
    receipt
        Where to write the receipt. Default: STUDY.receipt.json beside the study. Result and report are written beside it. Or a
        drop's receipt: it is said what became of that contribution.
    folder
        The folder for STUDY.result.json (what --json prints), STUDY.receipt.json and STUDY.privacy.html. It is created if it
        does not exist.
    """

    receipt: Path | None = None
    folder: Out = None

    @property
    def of_drop(self) -> list[Path]:
        """The receipt of a drop, if that was given."""
        return [self.receipt] if self.receipt is not None and kind_of_file(self.receipt) is FileKind.DROP_RECEIPT else []

    def receipt_of(self, study: Path) -> Path:
        """The path of the receipt. Raises :class:`InputError` where both are given."""
        if self.folder is not None and self.receipt is not None and not self.of_drop:
            raise InputError("--out names the folder of the receipt, and --receipt its file. Give one of them.")
        written = None if self.of_drop else self.receipt
        return written or (self.folder or study.parent) / f"{study.with_suffix('').name}.receipt.json"


NO_OPENED_OPTIONS = OpenedOptions()


@dataclass
class OpenedPages:
    """Receipt, result and pages of a sealed study at ``path``; refused before anything is done if they cannot be written.

    ``by``: what the receipt calls what is known of the files. ``origin``: what else it has.
    """

    sealed: Sealed
    choice: Choice
    path: Path
    by: str = "committee"
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_folder(self.path.parent)
        self._names = names_of(self.sealed)
        self.belongs: dict[str, Any] = {
            "study": self.choice.plan.context,
            "session": self.sealed.digest,
            "names": self._names,
            **self.origin,
        }
        self._pages = Pages.beside(self.path)
        beside = self.path.name.removesuffix(".json").removesuffix(".receipt")
        is_own = partial(_is_result_of, self.path)
        self.result = Output(self.path.with_name(f"{beside}.result.json"), "the result", own=is_own, force=output_options.force)
        outputs = [receipt_at(self.path, self.belongs), self.result, *self._pages.outputs(self.belongs)]
        require_apart(outputs)
        for planned in outputs:
            planned.require_free()

    def write(self, opened: Opened, effort: Mapping[str, Any], *, json: bool = False, details: bool = False, **more: Any) -> None:
        """The receipt, what is printed, the result and the pages. ``more``: what else the result says."""
        plan, outcome = self.choice.plan, opened.outcome
        origin = {
            **self.belongs,
            "quietmean": package_version(),
            "target": plan.target.describe(),
            "plan": plan.digest,
            "finished": now(),
            self.by: opened.to_json(),
            "notes": list(opened.notes),
        }
        outcome.save_receipt(self.path, origin)
        document = {
            **outcome.to_json(),
            **opened.to_json(),
            **choice_document(self.choice),
            **effort,
            "notes": opened.notes,
            **more,
            "receipt": str(self.path),
            **self._pages.to_json(),
        }
        self.result.write_json(document)
        # The answer first: pages only show it.
        screen = ResultScreen(
            outcome.receipt(origin), document, f"quietmean result {quote(near(self.path))}", details, effort=opened.headline
        )
        if json:
            print_json(document)
        else:
            screen.show()
        measured = {name: effort[name] for name in ("messages", "bytes", "seconds")}
        shown_to: dict[str, Any] = {"receipt": self.path, "notes": tuple(opened.notes), "origin": origin}
        run = StudyRun(self.sealed.study, outcome, tuple(self._names), **measured, **shown_to)
        saved = [self.path, self.result.path, *self._pages.write(run)]
        if not json:
            print_lines(indented("Saved", saved_text(saved)))
            screen.show_more()


def _is_result_of(receipt: Path, content: bytes) -> bool:
    """Whether a file holds a result that names this receipt, which was looked at itself."""
    named = json_object(content).get("receipt")
    return isinstance(named, str) and Path(named).name == receipt.name


def send_command(
    study: Path,
    *,
    data: str | Path,
    key: Path = Path("quietmean.key"),
    out_: Out = None,
    drop: str | None = None,
    store: Path | None = None,
    site: Annotated[ConsentOptions, Parameter(name="*")] = ConsentOptions(),  # noqa: B008 - it is frozen
    json: bool = False,
) -> None:
    """Write this party's one contribution to a sealed study. Nobody needs to be online, and the file may travel anyhow.

    The same data give the same file again; other data are refused. It is charged in full, and never given back.

    Parameters
    ----------
    study
        The signed study.
    data
        This party's records: a file, or a database such as postgresql://HOST/DATABASE (docs/analyse/data.md).
    key
        This party's private key, from quietmean key new; or a voucher from the registrar. A voucher for your own key is
        NAME.voucher, beside NAME.key.
    out_
        Where to write the contribution. Default: NAME.contribution. No other file is overwritten.
    drop
        https://HOST of a drop that receives the contribution. Its signed receipt is written beside the contribution.
    store
        The folder of this study's keys, as for accept. Default: beside the private key.
    json
        One JSON document on standard output.
    """
    forbid_core_dumps()
    forbid_tracing()
    require_kind_of_store(store)
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    if drop is not None:
        require_drop_for(sealed, drop)
    identity = load_identity(key)
    handed, path = write_contribution(study, sealed, identity, key, data, out_, store, site)
    sent = {}
    if drop is not None:
        received, receipt_path = hand_over(drop, sealed, identity.public_key, handed.contribution, path)
        sent = {"drop": drop, "receipt": str(receipt_path), "received": received.came}
    contract, account = handed.contract, handed.account
    document = {
        "contribution": str(path),
        "digest": handed.contribution.digest,
        "party": handed.name,
        "session": sealed.digest,
        "epsilon_a_priori": contract.epsilon_a_priori,
        "epsilon_if_all_others_collude": contract.everybody_else,
        "delta": contract.target.delta,
        "audit": handed.head.to_json(),
        **sent,
        **({"ledger": {"file": str(handed.ledger), **balance_json(account)}} if account is not None else {}),
    }
    if json:
        print_json(document)
        return
    if sent:
        lines = [f"Drop {drop} has it since {sent['received']}. Receipt: {sent['receipt']}"]
    else:
        to = "the members, unless it is in their folder" if has_committee(sealed.terms) else "whoever adds up"
        lines = [f"{path} is your contribution to study {sealed.terms.name!r}. Send it to {to}."]
    print_lines([*lines, *rows(fact for fact in screen_of(contract).rows if fact.key in _SENT)])
    out.print(f"{'Digest':10}{handed.contribution.digest}")
    if account is not None:
        show_balance(account)
    policy = [] if site.policy is None else ["--policy", str(site.policy)]
    more = join(["quietmean", "site", "contract", str(study), "--key", str(key), *policy, "--details"])
    print_lines([f"{'More':10}{more}"])
    if sent:
        return
    if has_committee(sealed.terms):
        print_lines(indented("Send", f"{near(path)} to the members: as a file, or with --drop https://HOST."))
    else:
        print_lines([f"{'They run':10}quietmean study combine {quote(str(study))} {quote(near(path))} OTHER.contribution ..."])


# What a contributor reads again of the terms.
_SENT = ("result", "costs", "against", "shown")


def write_contribution(
    study: Path,
    sealed: Sealed,
    identity: Identity,
    key: Path,
    data: str | Path,
    chosen_path: Path | None,
    store: Path | None,
    site: ConsentOptions,
) -> tuple[Delivered, Path]:
    """Hand in, and write the file; and where it is. Raises :class:`InputError` as :func:`hand_in`, and for another file there."""
    keys = contributor_keys(sealed, identity, key, store)
    name = own_place(sealed, identity, keys, key)
    joined = study.parent / f"{study.with_suffix('').name}-{file_name(name)}.store"
    if joined.exists() and not has_committee(sealed.terms):
        raise InputError(f"{name} has joined this study. See {joined}. A contribution too would tell more than was agreed.")
    path = chosen_path or Path(f"{file_name(name)}.contribution")
    if has_committee(sealed.terms):
        make_folder(path.parent)
    output(path, "the contribution", own=partial(is_contribution, None))

    def tell(encoded: Encoded, notes: Sequence[str]) -> None:
        tell_owner([encoded])
        tell_notes(list(notes))

    person = Person(AtTerminal(act="send"), warn, warn, tell, Observers(lambda event: None))
    handed = hand_in(sealed, identity, keys, data, account_name(data), site, person)
    own = output(path, "the contribution", own=partial(is_contribution, handed.contribution.digest))
    own.write(handed.contribution.to_file())
    return handed, path


def combine_command(
    study: Path,
    files: list[Path],
    /,
    *,
    written: OpenedOptions = NO_OPENED_OPTIONS,
    details: bool = False,
    json: bool = False,
) -> None:
    """Add up the contributions to a sealed study, and certify. It takes no key: anyone who has the files can do it, and again.

    Parameters
    ----------
    study
        The signed study.
    files
        The contributions, in any order, under any name.
    details
        Also show what is assumed, notes, and what other adversaries learn.
    json
        One JSON document on standard output.
    """
    begun = time.monotonic()
    path = written.receipt_of(study)
    sealed = Sealed.load(study)
    Distrusted().refuse(sealed.holders())
    parties = len(sealed.entries)
    choice = sealed.choice()
    plan = choice.plan
    pages = OpenedPages(sealed, choice, path, "by_file")
    with no_answer_shown():
        try:
            combined = combine(sealed, plan, files)
        except ProtocolFailure as error:
            raise without_answer(error, path, plan, CONTRIBUTIONS_STAY, pages.belongs) from None
    for file, reason in combined.left_out:
        warn(f"left out {file}: {reason}")
    effort: dict[str, Any] = {
        "messages": len(combined.digests),
        "bytes": len(combined.digests) * int(vector_bytes(plan.protocol, plan.target.dimension)),
        "seconds": round(time.monotonic() - begun, 3),
    }
    execution = combined.outcome.execution
    counted = float(execution.weights[execution.contributors()].sum())
    public = sealed.study.public_records(parties)
    records = counted * parties / len(combined.digests) if public is None else public
    pages.write(combined, effort, json=json, details=details, expected=Forecast(sealed.study, plan, records).to_json())


def result_command(
    file: Path | None = None,
    sums: list[Path] | None = None,
    /,
    *,
    written: OpenedOptions = NO_OPENED_OPTIONS,
    details: bool = False,
    json: bool = False,
) -> None:
    """Show a result again: that of a receipt, or of a session's. Without a file, that of the newest run in this folder.

    Of a study with a committee, give the sealed study and what its members published: every signature is checked, and that enough
    members' sums fit together. It takes no key: anyone who has the files can do it, and again. Exit code 3 where there is no
    answer.

    Parameters
    ----------
    file
        A receipt, the folder of a run, or the signed study of a committee.
    sums
        For a committee: the files NAME.sums that its members published, one or more; with a drop NAME.dropped and receipts, too.
        A saved page of the result is compared with what members signed in NAME.dropped.
    details
        Also show what is assumed, notes, and what other adversaries learn.
    json
        One JSON document on standard output.
    """
    if file is None or not sums:
        path = execution_or_newest(file)
        refuse_other(kind_of_file(path), f"file {path}", FileKind.RECEIPT, FileKind.SESSION_RECEIPT)
        show_receipt(path, read_json(path, FileKind.RECEIPT, FileKind.SESSION_RECEIPT), details=details, json=json)
        return
    _open_sums(file, sums, written, details=details, json=json)


def _open_sums(study: Path, files: Sequence[Path], written: OpenedOptions, *, details: bool, json: bool) -> None:
    begun = time.monotonic()
    path = written.receipt_of(study)
    sealed = sealed_with_committee(study)
    if sealed is None:
        raise InputError(
            f"{study} is not a sealed study with a committee. Add contributions to others up with quietmean study combine."
        )
    Distrusted().refuse(sealed.holders())
    choice = sealed.choice()
    session = session_of(sealed, choice.plan)
    results, drop, size = [], DropFiles(sealed), 0
    for file in dict.fromkeys([*files, *written.of_drop]):
        content = read_bounded(file, _MOST)
        try:
            if drop.take(content, session, str(file)):
                continue
            results.append(read_result(session, content))
        except InputError as error:
            refuse_other(kind_of_content(content), f"file {file}", FileKind.SUMS, FileKind.DROP_LOG, FileKind.DROP_RECEIPT)
            raise InputError(f"{file}: {error}") from None
        size += len(content)
    saved = drop.signed_pages()
    if saved and not results:
        _tell({"saved_pages": saved}, json)
        return
    pages = OpenedPages(sealed, choice, path)
    checked = check_result(session, merge_results(results))
    with no_answer_shown():
        try:
            opened = OpenedStudy.of(sealed, choice.plan, checked)
        except ProtocolFailure as error:
            raise without_answer(error, path, choice.plan, CONTRIBUTIONS_STAY, pages.belongs) from None
    effort = {"messages": len(results), "bytes": size, "seconds": round(time.monotonic() - begun, 3)}
    about = drop.about(opened.digests.values(), lambda: result_page(sealed, choice.plan, checked), saved)
    pages.write(opened, effort, json=json, details=details, **({"drop": about} if about else {}))
    if not json:
        _tell(about)


def _tell(about: Mapping[str, Any], json: bool = False) -> None:
    if json:
        print_json({"drop": about})
    for sentence, is_warning in () if json else DropFiles.told(about):
        (warn if is_warning else out.print)(sentence)


# A million contributions are named in 80 MB.
_MOST = 1 << 28
