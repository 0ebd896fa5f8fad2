"""What is shown and written of a sum that files give: of a committee, or of contributions, to anyone who has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cyclopts import Parameter

from quietmean.cli.answers import print_answers
from quietmean.cli.common import Out
from quietmean.cli.console import choice_document, out, output_options, print_json, print_privacy, printable
from quietmean.cli.pages import Pages
from quietmean.core.errors import InputError
from quietmean.core.folders import require_folder
from quietmean.core.output import Output, json_object, require_apart

if TYPE_CHECKING:
    from quietmean.planning.automatic import Choice
    from quietmean.studies import StudyOutcome
    from quietmean.studies.agreement.sealed import Sealed


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
        Where to write the receipt; by default STUDY.receipt.json beside the study. Result and report are written beside it.
    folder
        The folder for STUDY.result.json (what --json prints), STUDY.receipt.json and STUDY.privacy.html; it is made if need be.
    """

    receipt: Path | None = None
    folder: Out = None

    def receipt_of(self, study: Path) -> Path:
        """Raises :class:`InputError` where both are given."""
        if self.folder is not None and self.receipt is not None:
            raise InputError("--out names the folder of the receipt, and --receipt its file: give one of them")
        return self.receipt or (self.folder or study.parent) / f"{study.with_suffix('').name}.receipt.json"


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
        from quietmean.studies.outcome.opened_by_committee import names_of
        from quietmean.studies.outcome.outcome import receipt_at

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

    def write(self, opened: Opened, effort: Mapping[str, Any], json: bool, **more: Any) -> None:
        """The receipt, what is printed, the result and the pages. ``more``: what else the result says."""
        from quietmean.core.origin import package_version
        from quietmean.node.monitor import now

        plan, outcome = self.choice.plan, opened.outcome
        origin = {
            **self.belongs,
            "quietmean": package_version(),
            "target": plan.target.describe(),
            "plan": plan.digest,
            "finished": now(),
            self.by: opened.to_json(),
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
        if json:
            print_json(document)
        else:
            self._show(opened, document)
        shown_to: dict[str, Any] = {"names": self._names, "origin": origin, "notes": tuple(opened.notes)}
        measured = {name: effort[name] for name in ("messages", "bytes", "seconds")}
        self._pages.write(self.sealed.study.name, outcome, tell=not json, **shown_to, **measured)

    def _show(self, opened: Opened, document: dict[str, Any]) -> None:
        out.print(printable(opened.headline))
        print_answers(opened.outcome.answers, document)
        print_privacy(opened.outcome, document, self.sealed.study)
        for note in opened.notes:
            out.print(f"note: {printable(note)}")
        out.print(f"result  {self.result.path}\nreceipt {self.path}")


def _is_result_of(receipt: Path, content: bytes) -> bool:
    """Whether a file holds a result that names this receipt, which was looked at itself."""
    named = json_object(content).get("receipt")
    return isinstance(named, str) and Path(named).name == receipt.name


def make_folder(folder: Path) -> None:
    """Raises :class:`InputError` if it cannot be made."""
    require_folder(folder, "name another with --out")
