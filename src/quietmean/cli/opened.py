"""What is shown and written of a sum that a committee opened, by its members and by anybody else alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quietmean.cli.answers import print_answers
from quietmean.cli.combine import is_result_of, make_folder
from quietmean.cli.console import choice_document, out, output_options, print_json, print_privacy, printable
from quietmean.cli.pages import Pages
from quietmean.core.output import Output, require_apart

if TYPE_CHECKING:
    from quietmean.planning.automatic import Choice
    from quietmean.studies.agreement.sealed import Sealed
    from quietmean.studies.outcome.opened_by_committee import OpenedStudy


@dataclass
class OpenedPages:
    """Receipt, result and pages of a sealed study at ``path``; refused before anything is done if they cannot be written."""

    sealed: Sealed
    choice: Choice
    path: Path
    origin: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from quietmean.studies.outcome.opened_by_committee import names_of
        from quietmean.studies.outcome.outcome import receipt_at

        make_folder(self.path.parent)
        names = names_of(self.sealed)
        self._belongs = {
            "study": self.choice.plan.context,
            "session": self.sealed.digest,
            "names": names,
            **self.origin,
        }
        self._pages = Pages.beside(self.path)
        beside = self.path.name.removesuffix(".json").removesuffix(".receipt")
        is_own = partial(is_result_of, self.path)
        self.result = Output(self.path.with_name(f"{beside}.result.json"), "the result", own=is_own, force=output_options.force)
        outputs = [receipt_at(self.path, self._belongs), self.result, *self._pages.outputs(self._belongs)]
        require_apart(outputs)
        for planned in outputs:
            planned.require_free()

    def write(self, opened: OpenedStudy, effort: Mapping[str, Any], json: bool) -> None:
        """The receipt, what is printed, the result and the pages."""
        from quietmean.node.monitor import now
        from quietmean.node.preflight import package_version
        from quietmean.studies.outcome.opened_by_committee import names_of

        plan, outcome = self.choice.plan, opened.outcome
        origin = {
            **self._belongs,
            "quietmean": package_version(),
            "target": plan.target.describe(),
            "plan": plan.digest,
            "finished": now(),
            "committee": opened.to_json(),
        }
        outcome.save_receipt(self.path, origin)
        document = {
            **outcome.to_json(),
            **opened.to_json(),
            **choice_document(self.choice),
            **effort,
            "notes": opened.notes,
            "receipt": str(self.path),
            **self._pages.to_json(),
        }
        self.result.write_json(document)
        # The answer first: pages only show it.
        if json:
            print_json(document)
        else:
            self._show(opened, document)
        names = names_of(self.sealed)
        shown_to: dict[str, Any] = {"names": names, "origin": origin, "notes": tuple(opened.notes)}
        measured = {name: effort[name] for name in ("messages", "bytes", "seconds")}
        self._pages.write(self.sealed.study.name, outcome, tell=not json, **shown_to, **measured)

    def _show(self, opened: OpenedStudy, document: dict[str, Any]) -> None:
        out.print(printable(opened.headline), markup=False)
        print_answers(opened.outcome.answers, document)
        print_privacy(document, self.sealed.study)
        for note in opened.notes:
            out.print(f"note: {printable(note)}", markup=False)
        out.print(f"result  {self.result.path}\nreceipt {self.path}", markup=False)
