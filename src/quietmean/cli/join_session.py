"""``quietmean join`` of a session: the yes and the charge as for a study, then this party's program, round by round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from quietmean.cli.console import out, print_json
from quietmean.cli.ledger import balance_json, show_balance
from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.readable import count_of, epsilon_text

if TYPE_CHECKING:
    from quietmean.api.sessions import Rounds
    from quietmean.cli.live import NodeDisplay
    from quietmean.core.site_options import SessionOptions, SiteOptions
    from quietmean.learning.models.model import ModelByRounds
    from quietmean.ledger import Account
    from quietmean.sessions.agreed import SessionContract
    from quietmean.sessions.files import SessionFiles


def take_part(
    files: SessionFiles, site: SiteOptions, options: SessionOptions, data: str | Path | None, shown: NodeDisplay
) -> tuple[dict[str, Any], Account | None]:
    """The document of this party's part, and the ledger's account. Raises :class:`InputError` before anything is sent."""
    from quietmean.api.sessions import PartOf
    from quietmean.cli.asking import AtTerminal
    from quietmean.cli.console import warn
    from quietmean.protocols.target import budget_warnings
    from quietmean.sessions.joined import SessionPreparation
    from quietmean.studies.agreement.session_study import MODEL
    from quietmean.studies.party import Observers, Person

    program, own = options.program, None
    if files.contract.study.purpose.get("kind") == MODEL:
        own = OwnModel.read(files, site, program, data, shown)
        options = replace(options, records=len(own.records))
    else:
        _require_program(program, data)
    person = Person(
        AtTerminal(shown.asking), warn, lambda text: shown.warn([text]), shown.tell_owner, Observers(shown.report, shown.observe)
    )
    preparation = SessionPreparation(files, site, person)
    shown.say("calibrating the noise")
    with shown.asking():
        contract = preparation.agree()
    ready = preparation.prepare(options.most, options.records)
    shown.warn(budget_warnings(contract.target))
    # What it prints is drawn over by nothing.
    part = PartOf(ready)
    if own is not None:
        with part as rounds:
            own.fit(rounds)
    elif program is not None:
        with shown.asking():
            rounds = part.run(program)
    document = _document(contract, rounds) | ({} if own is None else own.document())
    payer, account = preparation.payer, rounds.account
    if payer is not None and account is not None:
        document["ledger"] = {"file": str(payer.ledger), **balance_json(account)}
    return document, account


def _require_program(program: Path | None, data: str | Path | None) -> None:
    """Raises :class:`InputError` unless there is a program, which reads its data by itself."""
    if data is not None:
        raise InputError("the vectors of a session are made by a program, which reads its data itself: leave --data out")
    if program is None:
        raise InputError("this is a session, of many means of vectors: give --program FILE, what makes this party's vectors")
    if not program.is_file():
        raise InputError(f"program {program} is not a file: check the path")


@dataclass(frozen=True, eq=False, repr=False)
class OwnModel:
    """The model that a session fits, and this party's ``records`` in its columns."""

    files: SessionFiles
    model: ModelByRounds
    records: Array
    kept: Path

    @classmethod
    def read(
        cls, files: SessionFiles, site: SiteOptions, program: Path | None, data: str | Path | None, shown: NodeDisplay
    ) -> Self:
        """Raises :class:`InputError` without data, and for a session of another model."""
        from quietmean.learning.kept import KEPT
        from quietmean.learning.models.agreed import model_of

        if program is not None:
            raise InputError("this session fits a model, which needs no program: leave --program out, and give --data FILE")
        if data is None:
            raise InputError("this session fits a model: give --data FILE, the records of this party")
        model, notes = model_of(files.contract.study, len(files.contract.parties)), list[str]()
        records = model.read(data, notes.append)
        shown.warn([f"{note} (for you only)" for note in notes])
        store = files.store(site.store)
        return cls(files, model, records, store.with_name(f"{store.name.removesuffix('.store')}{KEPT}"))

    def fit(self, rounds: Rounds) -> None:
        """All rounds of this party."""
        contract = self.files.contract
        self.model.fit_in(rounds, self.records, contract.party, len(contract.parties), self.kept)

    def document(self) -> dict[str, Any]:
        """What came of it, the same at all parties."""
        ratios, coefficients = self.model.ratios.to_json(), self.model.coefficients.to_json()
        return {"model": {"kind": self.model.kind, "coefficients": coefficients, "ratios": ratios, "kept": str(self.kept)}}


def show(document: dict[str, Any], account: Account | None, json: bool) -> None:
    """For people, or as one JSON document."""
    if json:
        print_json(document)
        return
    rounds, spent = document["rounds"], epsilon_text(document["epsilon"])
    cost = f"epsilon {spent} at delta {document['delta']:g} at most"
    out.print(
        f"session {document['session']!r}: {rounds['begun']} of {count_of(rounds['agreed'], 'round')}, {cost}",
    )
    if model := document.get("model"):
        from quietmean.statistics.tidy_tables import TidyTerms

        out.print(repr(TidyTerms.of([model["ratios"]])))
        for message in model["ratios"]["messages"]:
            out.print(message)
    out.print(f"receipt {document['receipt']}")
    if absent := document.get("not_in_at_start"):
        out.print(f"{', '.join(absent)} took no part: not in at the start")
    if account is not None:
        show_balance(account)


def _document(contract: SessionContract, rounds: Rounds) -> dict[str, Any]:
    return {
        "session": contract.name,
        "party": contract.own.name,
        "contract": contract.digest,
        "rounds": {"agreed": contract.study.rounds, "begun": rounds.begun},
        "epsilon": rounds.epsilon,
        "delta": contract.study.delta,
        "receipt": str(rounds.receipt),
        **({} if rounds.absent is None else {"not_in_at_start": list(rounds.absent)}),
    }
