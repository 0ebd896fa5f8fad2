"""``quietmean verify receipt``: what an execution leaked, from its file alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cyclopts import Parameter
from rich.table import Table

from quietmean.cli.common import execution_or_newest
from quietmean.cli.console import (
    OK,
    gate_sentence,
    out,
    output_options,
    print_assumptions,
    print_facts,
    print_json,
    print_lines,
    printable,
    progress,
    warn,
)
from quietmean.cli.screens import BELOW, ReceiptScreen
from quietmean.cli.simulate import DELTA, AdversaryOptions, names_in
from quietmean.core.assumptions import QueryStatement, assumptions_json, usual_colluders
from quietmean.core.domain import half_range
from quietmean.core.errors import InputError, only_shown
from quietmean.core.extensions import require_report
from quietmean.core.file_kinds import SESSION_RECEIPT, FileKind, read_json
from quietmean.core.output import Output, require_version
from quietmean.core.readable import count_of, delta_shown, epsilon_shown, epsilon_text, indented, nats_promised, nats_text
from quietmean.core.schema import require_delta
from quietmean.ledger import Ledger
from quietmean.planning.gate import GateRecord
from quietmean.privacy import Adversary, Certificate, CoalitionCertificate, PrivacyAnalysis
from quietmean.privacy.analysis import privacy_facts
from quietmean.privacy.certificate import nats_json
from quietmean.privacy.coalitions import Effort
from quietmean.privacy.diagnostics import diagnose
from quietmean.privacy.loss import EXACT
from quietmean.protocols.execution import Execution, read_execution
from quietmean.protocols.execution_files import OneShot
from quietmean.protocols.fields import Hints
from quietmean.studies import gate_summary
from quietmean.studies.outcome.registry_entry import ALSO, END, RegistryEntry, entry_at, registry_entry

if TYPE_CHECKING:
    from quietmean.core.readable import Fact
    from quietmean.ledger import Account


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ShownOptions:
    """Files that are written besides, and what they show.

    Parameters
    ----------
    report
        Also write a page (HTML): first in words for the data owner, then what protects the least protected party, and who could
        harm it. FILE.yaml: instead, an entry for the public registry of differential privacy deployments.
    table
        Also write the receipt's result as tables, such as Table 1 or coefficients: FILE.docx (Word), FILE.tex (LaTeX),
        FILE.html or FILE.csv.
    ledger
        With --report: show on the page what is left of a budget in this ledger.
    account
        With --ledger: the budget account.
    details
        Also show each party's figure, all adversaries and every assumption.
    """

    report: Path | None = None
    table: Path | None = None
    ledger: Path | None = None
    account: str | None = None
    details: bool = False

    @property
    def entry(self) -> Output | None:
        """Where an entry for the registry of deployments goes; None where none is asked for."""
        asked = self.report is not None and self.report.suffix.lower() in (END, ALSO)
        return entry_at(self.report, output_options.force) if self.report is not None and asked else None

    def balance(self) -> Account | None:
        """What the page says of a ledger.

        Raises :class:`InputError` for options that show nothing, and for an unknown account.
        """
        ledger, account = self.ledger, self.account
        if (ledger is None) != (account is None):
            given, missing = (
                (f"ledger {ledger}", "--account NAME") if account is None else (f"account {account!r}", "--ledger FILE")
            )
            raise InputError(f"{given} has no effect alone. Give {missing} with it.")
        if ledger is None or account is None:
            return None
        if self.report is None or self.entry is not None:
            raise InputError(f"account {account!r} is shown on the page only. Give --report FILE.html with it.")
        with Ledger.open(ledger) as book:
            return book.account(account)


def receipt_command(
    execution: Path | None = None,
    *,
    against: AdversaryOptions = AdversaryOptions(),  # noqa: B008 - it is frozen
    epsilon: float | None = None,
    delta: float | None = None,
    prior_sd: float | None = None,
    matrix: bool = False,
    shown: ShownOptions = ShownOptions(),
    json: bool = False,
) -> None:
    """Certify an execution file or a receipt: exact privacy loss per honest party.

    With --corrupt, --observed or --observe-fraction: against that adversary. Without: against every coalition of --colluding
    parties (a bound where they are too many to be tried), and against everybody else together. Where the study counted with
    eavesdropping, what was read is known to each of them, unless --observed or --observe-fraction say otherwise.

    Parameters
    ----------
    execution
        A receipt or execution file (JSON); for a session, the receipt of all its rounds. Default: the receipt of the newest run
        in this folder.
    epsilon
        Report the delta of each party at this epsilon.
    delta
        Report the epsilon of each party at this delta. Default: from the receipt, or 1e-6.
    prior_sd
        Also report mutual information, in nats, for independent normal values of this standard deviation.
    matrix
        Also report the information matrix.
    json
        One JSON document on standard output.
    """
    _require_possible(epsilon, delta, prior_sd)
    against.require_effect(matrix=matrix)
    report, table, entry = shown.report, shown.table, shown.entry
    execution = execution_or_newest(execution)
    raw = read_json(execution, FileKind.RECEIPT, FileKind.SESSION_RECEIPT)
    require_version(raw.get("format"), SESSION_RECEIPT, f"file {execution}")
    if raw.get("format") == SESSION_RECEIPT:
        several = {**against.given(), "epsilon": epsilon, "prior-sd": prior_sd, "matrix": matrix or None}
        several |= {"report": report, "table": table}
        _certify_session(raw, delta, several, json)
        return
    if "protocol" not in raw and isinstance(raw.get("no_result"), Mapping):
        _show_without_result(raw, json)
        return
    hints = Hints.of(raw)
    happened = read_execution(raw)
    registered = None if entry is None else _registered(raw, entry, against)
    if entry is not None:
        report = None
    if report is not None:
        require_report("the page")
        from quietmean.report.certificate import certificate_page_at

        if not isinstance(happened, Execution):
            raise InputError("this file holds noise without a protocol, which has no exchange to explain. Leave --report out.")
        certificate_page_at(report, happened, output_options.force).require_free()
    tables = None if table is None else _tables(table, raw, report)
    balance = shown.balance()
    delta = delta if delta is not None else DELTA if hints.delta is None else hints.delta
    record = GateRecord.of_receipt(raw, happened) if isinstance(happened, Execution) else None
    if record is not None:
        happened = record.execution
    with progress("solving for what the adversary knows"):
        analysis = happened.privacy(delta)
        explained: dict[str, Any]
        certificate: Certificate | CoalitionCertificate
        if against.explicit:
            explained = {"adversary": against.adversary(analysis, names_in(raw))}
            document, certificate = _against_one(happened, analysis, explained["adversary"], epsilon, prior_sd, matrix)
        else:
            usual = usual_colluders(happened.parties) if hints.colluding is None else hints.colluding
            explained = {"size": usual if against.colluding is None else against.colluding}
            document, certificate = _against_coalitions(analysis, explained["size"], epsilon, against.allowed())
            if prior_sd is not None or hints.nats is not None:
                # Of a target in nats values are normal with half the range.
                document |= _nats_of_any(analysis, explained["size"], prior_sd or half_range(analysis.sensitivity))
            if record is not None:
                document["gate"] = gate_summary(record)
    origin = raw.get("origin")
    declared = QueryStatement.of_json(origin.get("query") if isinstance(origin, Mapping) else None).assumptions
    document["assumptions"] = [*document["assumptions"], *assumptions_json(declared)]
    if entry is not None and registered is not None:
        document["registry_entry"] = {"file": str(entry.path), "empty": list(registered.empty)}
    if json:
        print_json(document)
    else:
        print_lines([*ReceiptScreen(execution, raw, hints, analysis, certificate, document, names_in(raw)).lines()])
        if shown.details:
            out.print()
            _show(document, privacy_facts(analysis, certificate), delta, str(analysis.terms.relation), names_in(raw))
    if report is not None and isinstance(happened, Execution):
        # The answer first: the page only shows it.
        with only_shown(f"page {report}", warn):
            from quietmean.report import ReportFacts, write_certificate_report
            from quietmean.studies.outcome.influence import stated_influence

            stated = ReportFacts.of_receipt(raw, execution.stem)
            stated = replace(stated, account=balance, influence=stated_influence(raw), file=str(execution))
            write_certificate_report(happened, report, delta=delta, stated=stated, force=output_options.force, **explained)
            if not json:
                out.print(f"explained in {report}")
    if entry is not None and registered is not None:
        entry.write(registered.yaml())
        if not json:
            print_lines(indented("Entry", f"{entry.path}. Fill in {', '.join(registered.empty)}.", 7))
    if tables is not None:
        tables_file, content = tables
        with only_shown(f"table {table}", warn):
            tables_file.write(content)
            if not json:
                out.print(f"tables in {table}")


def _show_without_result(raw: Mapping[str, Any], json: bool) -> None:
    """Say of a receipt without an execution why a result is missing, and what stays charged at most."""
    end = raw["no_result"]
    if json:
        print_json({"no_result": end})
        return
    print_lines([printable(f"no result: {end.get('reason')}")])
    print_lines([printable(f"charged: {end.get('charged')}")])


def _registered(raw: Mapping[str, Any], entry: Output, against: AdversaryOptions) -> RegistryEntry:
    """The entry for the registry, before anything is shown.

    Raises :class:`InputError` for options that it has not, for a receipt that it cannot be made of, and for another file there.
    """
    if against.explicit or against.colluding is not None:
        raise InputError("an entry states what the study promised, against no other adversary. Leave --corrupt and the like out.")
    made = registry_entry(raw)
    entry.require_free(made.yaml())
    return made


def _require_possible(epsilon: float | None, delta: float | None, prior_sd: float | None) -> None:
    """Raises :class:`InputError` for numbers that are none of their kind."""
    if delta is not None:
        require_delta(delta)
    if epsilon is not None and not (epsilon > 0 and math.isfinite(epsilon)):
        raise InputError(f"epsilon is {epsilon:g}. Choose a finite number > 0, for example 1.")
    if prior_sd is not None and not (prior_sd > 0 and math.isfinite(prior_sd)):
        raise InputError(f"prior-sd is {prior_sd:g}. Choose a finite number > 0.")


def _certify_session(raw: Mapping[str, Any], delta: float | None, options: Mapping[str, object], json: bool) -> None:
    """Show from the receipt of a session what its rounds cost together, whatever happened in them."""
    from quietmean.sessions.receipt import certified

    if unused := [name for name, value in options.items() if value is not None]:
        raise InputError(f"--{unused[0]} is for one execution, and this is the receipt of a session of many. Leave it out.")
    with progress("adding up the rounds"):
        document = certified(raw, delta)
    if json:
        print_json(document)
        return
    rounds = document["rounds"]
    spent = f"epsilon {epsilon_shown(document['epsilon'])} (delta {delta_shown(document['delta'])})"
    print_lines(
        [
            f"session {document['session']!r}: {rounds['begun']} of {count_of(rounds['agreed'], 'round')} began",
            f"{OK}all rounds together: at most {spent} for one {document['unit']}, guaranteed",
            f"{BELOW}against {document['adversary']}",
            f"{BELOW}enforced by {document['enforced_by']}; neighbouring data: {document['neighbouring']}",
        ]
    )


def _tables(table: Path, raw: Mapping[str, Any], report: Path | None) -> tuple[Output, bytes]:
    """Where they go, and what they are, before anything is computed.

    Raises :class:`InputError` where a result is missing, or the file could not be written.
    """
    from quietmean.studies.outcome.tables import tables_at, tables_bytes

    tables_file = tables_at(table, output_options.force)
    result = raw.get("result")
    if not (isinstance(result, Mapping) and result.get("statistics")):
        raise InputError("this file has no result to make tables of. Give the receipt of a study, or leave --table out.")
    if report is not None and report.resolve() == table.resolve():
        raise InputError(f"the page and the tables would be one file, {table}. Name another with --table.")
    content = tables_bytes(result, table)
    tables_file.require_free(content)
    return tables_file, content


def _has_cancelled_noise(execution: Execution) -> bool:
    """In what the transcript says; masks of secure aggregation are not in it."""
    linear = execution.protocol.traits.linear
    return execution.protocol.traits.transfers_mass or (linear and bool(execution.schedule.pairs.size))


def _nats_of_any(analysis: PrivacyAnalysis, size: int, prior_sd: float) -> dict[str, Any]:
    """Mutual information of the worst party, whichever ``size`` parties collude; the same figure for each."""
    nats = analysis.terms.conversion.nats_against_any(size, prior_sd)
    if nats is None:
        raise InputError(
            "--prior-sd has no effect without an adversary here, since no bound of mutual information against every coalition is "
            "known. Give --corrupt, or leave it out."
        )
    promised = analysis.terms.promise(size, frozenset())
    is_promised = promised is not None and math.isfinite(promised.nats) and prior_sd == half_range(analysis.sensitivity)
    a_priori = {"nats_a_priori": promised.nats} if promised is not None and is_promised else {}
    figures = np.full(analysis.transcript.parties, nats)
    return {**a_priori, **nats_json(figures, prior_sd, analysis.terms.conversion.coordinates)}


def _against_one(
    happened: Execution | OneShot,
    analysis: PrivacyAnalysis,
    adversary: Adversary,
    epsilon: float | None,
    prior_sd: float | None,
    matrix: bool,
) -> tuple[dict[str, Any], Certificate]:
    certificate = analysis.against(adversary.corrupt, adversary.observed)
    document = certificate.to_json(epsilon=epsilon, prior_sd=prior_sd, matrix=matrix)
    # The theorems are about shares that are passed on and noise that pairs have in common.
    if isinstance(happened, Execution) and _has_cancelled_noise(happened):
        document["diagnostics"] = diagnose(analysis.transcript, adversary).sentences()
    return document, certificate


def _against_coalitions(
    analysis: PrivacyAnalysis, size: int, epsilon: float | None, effort: Effort
) -> tuple[dict[str, Any], CoalitionCertificate]:
    coalitions, alone = analysis.coalitions(size, effort=effort), analysis.single_honest()
    document: dict[str, Any] = {
        **analysis.terms.a_priori_json(coalitions.a_priori),
        "adversary": coalitions.describe(),
        "sensitivity": analysis.sensitivity,
        "honest": list(range(analysis.transcript.parties)),
        "mu": coalitions.mu,
        "mu_upper": coalitions.mu,
        "at_delta": analysis.delta,
        "epsilon": coalitions.epsilon,
        "max_epsilon": coalitions.max_epsilon,
        "disclosures": [],
        "numbers": coalitions.numbers,
        "definition": analysis.terms.definition,
        "guarantee": analysis.guarantee,
        "assumptions": assumptions_json(coalitions.assumptions),
        "certificates": {
            "coalitions": coalitions.to_json(),
            "everyone_else": {
                "adversary": "everybody else together",
                "mu": alone,
                "max_epsilon": analysis.epsilon(float(alone.max())),
            },
        },
    }
    if coalitions.found is not None:
        document["certificates"]["worst_found"] = coalitions.found.to_json()
    if epsilon is not None:
        document |= {"at_epsilon": epsilon, "delta": analysis.terms.deltas(coalitions.mu, epsilon)}
    return document, coalitions


def _show(document: dict[str, Any], facts: Sequence[Fact], delta: float, relation: str, names: Sequence[str]) -> None:
    print_facts(facts)
    if "gate" in document:
        print_lines([gate_sentence(document["gate"])])
    print_lines([f"realised cost of each party; sensitivity {document['sensitivity']:g} (L2, {relation}):"])
    table = Table(box=None, pad_edge=False)
    for title in ("party", "mu", f"epsilon at delta {delta:g}", *(["delta"] if "at_epsilon" in document else [])):
        table.add_column(title, justify="right")
    for row, party in enumerate(document["honest"]):
        extra = [f"{document['delta'][row]:.3g}"] if "at_epsilon" in document else []
        table.add_row(
            names[party] if names else str(party),
            f"{document['mu_upper'][row]:.4f}",
            epsilon_text(document["epsilon"][row]),
            *extra,
        )
    out.print(table)
    print_lines([f"claim: {document['guarantee']}"])
    if document["numbers"] != EXACT:
        print_lines([f"each figure above is an {document['numbers']}"])
    certificates = document.get("certificates", {})
    if "worst_found" in certificates and (needed := certificates["coalitions"].get("effort_to_try_all")):
        print_lines([f"to try all coalitions would take about {needed:.2g} s of one core. Give --effort {math.ceil(needed)}."])
    for sentence in document.get("diagnostics", []):
        print_lines([sentence])
    for sentence in document["disclosures"]:
        print_lines([f"warning: {sentence}"], style="red")
    coordinates = document.get("coordinates")
    if "nats_a_priori" in document:
        print_lines([nats_promised(document["nats_a_priori"], coordinates, document["enforced_by"])])
    if "mutual_information_nats" in document:
        worst_nats = max((float(nats) for nats in document["mutual_information_nats"]), default=0.0)
        revealed = max((float(part) for part in document["revealed_variance"]), default=0.0)
        upper = document["numbers"] != EXACT
        text = nats_text(worst_nats, revealed, document["prior_sd"], coordinates, upper)
        print_lines([f"mutual information of the worst party: {text}"])
    print_assumptions(document["assumptions"])
