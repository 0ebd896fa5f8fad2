"""``quietmean plan``: which protocol, with which noise, at which cost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from quietmean.cli.console import epsilon_text, err, out, print_json, progress, warn
from quietmean.cli.options import NO_OPTIONS, ProtocolOptions
from quietmean.cli.plan_cache import PlanCache
from quietmean.core.codec import canonical_json
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.planning.choices import Calibration
from quietmean.protocols import Server
from quietmean.protocols.cordp_dme.design import SensitivityConvention, ball_sensitivity

if TYPE_CHECKING:
    from quietmean.planning.candidates import Ranking


class Domain(StrEnum):
    """Where values lie. ``unit-ball``: L2 norm at most 1."""

    UNIT_BALL = "unit-ball"


def command(
    *,
    parties: int | None = None,
    study: Path | None = None,
    roster: Path | None = None,
    dimension: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    colluding: float | None = None,
    dropouts: float | None = None,
    responding: int | None = None,
    sensitivity: float | None = None,
    domain: Domain | None = None,
    convention: SensitivityConvention | None = None,
    unit: PrivacyUnit | None = None,
    protocol: list[str] | None = None,
    options: Annotated[ProtocolOptions, Parameter(name="*")] = NO_OPTIONS,
    server: Server = Server.NONE,
    max_messages: int | None = None,
    calibration: Calibration = Calibration.EXACT,
    trials: int | None = None,
    explain: Annotated[bool, Parameter(negative="")] = False,
    cache: bool = True,
    save: Annotated[Path | None, Parameter(name="--out")] = None,
    no_privacy: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Calibrate protocols for a target and rank them by predicted mean squared error.

    Parameters
    ----------
    parties
        Number of parties; or give --study.
    study
        Plan this study: a sealed study, or a study file with --roster or --parties. It says the target, and the protocol unless
        --protocol does.
    roster
        Names, addresses and public keys of all parties of a study that is not sealed.
    dimension
        Coordinates of a value; default 1.
    epsilon
        Privacy target, together with delta; default 1.
    delta
        Probability with which the epsilon guarantee may fail; default 1e-6.
    colluding
        How many parties may collude: a count, or a fraction below 1; default one in ten.
    dropouts
        Fraction of parties expected to drop out permanently; default 0.
    responding
        Instead of dropouts: how many parties are expected to stay.
    sensitivity
        L2 change of a party's value when one protected unit is replaced; default 1.
    domain
        Instead of sensitivity: where values lie. unit-ball is L2 norm at most 1, so that replacement has sensitivity 2.
    convention
        Sensitivity of a domain: replacement, or table-ii (half of it, to reproduce that table of the CorDP-DME paper only).
    unit
        What is protected: one record, or all of a party, which is the default.
    protocol
        Only these protocols; repeat for several.
    server
        What may be relied on besides equal parties: none, collector (not trusted with values), curator (sees them).
    max_messages
        Messages that a party may send on average, before the result is disseminated.
    calibration
        exact; or, to compare with the IncA paper, exact-view or paper (epsilon < 1 only).
    trials
        Simulated histories that must all pass the gate before a release: 299 show a chance of no result of at most 1 %, 59 one of
        5 %. Default: as many as take seconds; none against more than 500 coalitions.
    explain
        Say when another protocol would be first; plans several changes of the target.
    cache
        Take the answer from the cache if the same was asked before, and keep it there.
    save
        Write the best plan to this file.
    no_privacy
        Plan protocols that protect nothing, such as gossip; refused otherwise.
    json
        One JSON document on standard output.
    """
    if trials is not None and trials < 1:
        raise InputError(f"{trials} trials show nothing about the gate: choose at least 1, for example 299")
    given = {
        "epsilon": epsilon,
        "delta": delta,
        "dimension": dimension,
        "sensitivity": sensitivity,
        "domain": domain,
        "convention": convention,
        "colluding": colluding,
        "dropouts": dropouts,
        "responding": responding,
        "unit": unit,
    }
    if study is None:
        target = _target_asked(parties, roster, given)
    else:
        target = _target_of_study(study, roster, parties, given, protocol, options)
    asked = {
        "protocols": protocol,
        "options": options.chosen(),
        **target,
        "server": str(server),
        "max_messages": max_messages,
        "calibration": str(calibration),
        "explain": explain,
        "no_privacy": no_privacy,
        "trials": trials,
    }
    if convention == SensitivityConvention.TABLE_II:
        err.print(
            "quietmean: convention table-ii protects replacement in the ball less than stated: to reproduce that table only"
        )
    store = PlanCache()
    answer = store.find(asked) if cache else None
    if answer is None:
        with progress("calibrating"):
            answer = _answer(asked)
        if cache:
            store.keep(asked, answer)
    best = answer.pop("plan")
    for sentence in answer["warnings"]:
        warn(sentence)
    if save is not None:
        try:
            save.write_bytes(canonical_json(best) + b"\n")
        except OSError as error:
            raise InputError(f"the plan cannot be written to {save} ({error.strerror}): choose another place") from None
    if json:
        print_json(answer)
    else:
        _show(answer)


def _target_asked(parties: int | None, roster: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """What to plan for, from options. Raises :class:`InputError` for options that contradict each other."""
    if parties is None or roster is not None:
        raise InputError("what to plan for is not clear: give --parties N, or --study with --roster")
    dropouts, responding = given["dropouts"], given["responding"]
    if responding is not None:
        if dropouts is not None:
            raise InputError(f"dropouts {dropouts:g} and responding {responding} say the same twice: give one of them")
        if not 1 <= responding <= parties:
            raise InputError(f"{responding} of {parties} parties responding is impossible: choose 1..{parties}")
        dropouts = (parties - responding) / parties
    dimension = 1 if given["dimension"] is None else given["dimension"]
    domain, convention = given["domain"], given["convention"]
    return {
        "parties": parties,
        "epsilon": 1.0 if given["epsilon"] is None else given["epsilon"],
        "delta": 1e-6 if given["delta"] is None else given["delta"],
        "dimension": dimension,
        "sensitivity": _sensitivity(given["sensitivity"], domain, convention),
        "colluding": 0.1 if given["colluding"] is None else given["colluding"],
        "dropouts": dropouts or 0.0,
        "unit": str(given["unit"] or PrivacyUnit.PARTY),
        # Values in a ball: for protocols that can make use of it.
        "offered": {} if domain is None else {"radius": 1.0},
        "domain": _domain(dimension, domain, convention),
    }


def _target_of_study(
    path: Path,
    roster: Path | None,
    parties: int | None,
    given: dict[str, Any],
    protocol: list[str] | None,
    options: ProtocolOptions,
) -> dict[str, Any]:
    """What a study asks for. Raises :class:`InputError` for options that it says itself."""
    from quietmean.cli.preparation import agreed_files
    from quietmean.studies import Study
    from quietmean.studies.signed import is_signed_document

    said = next((name for name, value in given.items() if value is not None), None)
    if said is not None:
        raise InputError(f"--{said} stands beside --study, which says what to plan for: leave it out, or change the study")
    if parties is None or roster is not None or is_signed_document(path):
        study, members, _ = agreed_files(path, roster)
        if parties not in (None, len(members)):
            raise InputError(f"--parties {parties} stands beside {len(members)} parties that are known: leave it out")
        parties = len(members)
    else:
        study = Study.load(path)
    target = study.target(parties)
    # The protocol that the study names, with its options, unless others are to be compared.
    named = {} if protocol else {"protocols": [study.protocol], "options": {**study.options, **options.chosen()}}
    return {
        **named,
        "parties": parties,
        "epsilon": target.epsilon,
        "delta": target.delta,
        "dimension": target.dimension,
        "sensitivity": target.sensitivity,
        "colluding": target.colluding,
        "dropouts": target.dropouts,
        "unit": str(target.unit),
        "offered": {},
        "domain": study.workload.domain.describe(),
    }


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The JSON document, and the best plan with it."""
    # Nothing of this is needed where the answer is known already.
    from quietmean.planning.candidates import configured, general_protocols, rank
    from quietmean.planning.explain import when_another, why_first
    from quietmean.protocols.target import Target, budget_warnings, colluding_count

    parties = asked["parties"]
    target = Target(
        parties=parties,
        epsilon=asked["epsilon"],
        delta=asked["delta"],
        dimension=asked["dimension"],
        sensitivity=asked["sensitivity"],
        colluding=colluding_count(parties, asked["colluding"]),
        dropouts=asked["dropouts"],
        unit=PrivacyUnit(asked["unit"]),
    )
    calibration, server = Calibration(asked["calibration"]), Server(asked["server"])

    def ranking(wanted: Target, accepted: Server) -> Ranking:
        values = configured(asked["protocols"] or general_protocols(accepted), asked["options"], asked["offered"])
        named, most = bool(asked["protocols"]), asked["max_messages"]
        domain = None if asked["domain"] is None else InputDomain.parse(asked["domain"])
        return rank(
            wanted,
            values,
            calibration=calibration,
            max_messages=most,
            strict=named,
            domain=domain,
            trials=asked["trials"],
            no_privacy=asked["no_privacy"],
        )

    candidates = ranking(target, server)
    document = {
        "target": target.describe(),
        "candidates": [candidate.to_json() for candidate in candidates],
        "chosen": 0,
        "why": why_first(candidates),
        "domain": candidates[0].plan.input_domain.text,
        "warnings": [*budget_warnings(target), *_without_effect(calibration, candidates)],
        "plan": candidates[0].plan.to_json(),
    }
    if asked["explain"]:
        document["otherwise"] = when_another(target, server, candidates, ranking)
    return document


def _without_effect(calibration: Calibration, candidates: Ranking) -> list[str]:
    fixed = [one.plan.protocol.name for one in candidates if one.plan.prediction.get("calibration") == "direct"]
    if calibration == Calibration.EXACT or not fixed:
        return []
    return [f"calibration {calibration} has no effect on {', '.join(fixed)}: the noise there follows from a formula"]


def _show(answer: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("protocol", "predicted MSE", "epsilon a priori", "rounds", "messages/party", "bytes/party", "trust"):
        table.add_column(title, justify="left" if title in ("protocol", "trust") else "right")
    candidates = answer["candidates"]
    for found in candidates:
        messages, size = f"{found['messages_per_party']:.1f}", f"{found['bytes_per_party']:.0f}"
        table.add_row(
            found["protocol"],
            f"{found['mse']:.4g}",
            epsilon_text(float(found["epsilon_a_priori"])),
            str(found["rounds"]),
            messages,
            size,
            found["trust"],
        )
    out.print(table)
    out.print(f"domain of a value under {candidates[0]['protocol']}: {answer['domain']}", markup=False)
    gates = [f"{one['protocol']}: {one['certificate']['gate']}" for one in candidates if "gate" in one["certificate"]]
    for sentence in (answer["why"], *gates, *answer.get("otherwise", ())):
        out.print(sentence, markup=False)


def _sensitivity(sensitivity: float | None, domain: Domain | None, convention: SensitivityConvention | None) -> float:
    if domain is None:
        if convention is not None:
            raise InputError(f"convention {convention} needs a domain: give --domain unit-ball too")
        return 1.0 if sensitivity is None else sensitivity
    if sensitivity is not None:
        raise InputError(f"sensitivity {sensitivity:g} and domain {domain} say the same twice: give one of them")
    return ball_sensitivity(1.0, convention or SensitivityConvention.REPLACEMENT)


def _domain(dimension: int, domain: Domain | None, convention: SensitivityConvention | None) -> Any:
    """In plain data; None where the plan states none. The convention of the table is for a sensitivity that the ball exceeds."""
    if domain is None or convention == SensitivityConvention.TABLE_II:
        return None
    return InputDomain.ball(dimension, 1.0).describe()
