"""Every protocol x every own option x what is protected x who listens: from the plan to processes, and what receipts are for.

What is planned is run between processes over TLS; the receipt is certified (against a coalition, against every coalition, with
what is learnt in nats where the noise is Gaussian), attacked, and made into a page. What a plan refuses, ``run`` refuses in the
same words, before a process starts. Between machines, with a party that is killed and started again or gone for good, every
protocol is in ``test_joined_errors``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.cli.run import RehearsalOptions, run_local_study
from quietmean.core.errors import InputError
from quietmean.planning import Plan
from quietmean.protocols import get_protocol
from quietmean.protocols.interception import already_public
from quietmean.protocols.packed_sharing.spec import BALL
from quietmean.protocols.target import ALL_AFTER_FIRST
from quietmean.studies.agreement.study import StudyTerms
from support.every_option import every_option
from support.json_documents import faults

PARTIES, EPSILON, DELTA = 4, 8.0, 1e-6
# All cases take long; these show in a few seconds that the way is open.
QUICK: list[tuple[str, dict[str, Any], str, Any]] = [
    ("cordp-dme", {"decoder": "biased", "radius": 2.0}, "record", None),
    ("inca", {}, "record", 0.5),
]
EVERY: list[tuple[str, dict[str, Any], str, Any]] = [
    (name, options, unit, read)
    for name, options in every_option()
    # Options do not depend on what is protected, up to where values lie: see test_what_machines_refuse for all of them.
    for unit in (("record", "party") if not options else ("record",))
    # Nor on who reads messages.
    for read in ((None, 0.5, ALL_AFTER_FIRST) if not options and unit == "record" else (None,))
]
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY]
# Why an attack is refused, which is one on sums with Gaussian noise: each of these says so.
NO_ATTACK = {
    "secagg": "messages are masked by what keys expand to",
    "secagg-plus": "messages are masked by what keys expand to",
    "secret-sharing": "there is no noise, and shares are residues",
}
REFUSED = ("Attack sums with Gaussian noise", "there is none on")


def asked(name: str, options: dict[str, Any], unit: str, read: Any) -> StudyTerms:
    column = {"name": "age", "low": 20, "high": 90}
    raw = {"epsilon": EPSILON, "delta": DELTA, "protocol": name, "options": options, "unit": unit, "column": [column]}
    raw |= {} if read is None else {"eavesdropping": read}
    # How well it estimates is asked elsewhere.
    return StudyTerms.parse({**raw, "accept_wide": True})


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    main([*arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options", "unit", "read"), CASES, ids=str)
def test_from_the_plan_to_the_attack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, options: dict[str, Any], unit: str, read: Any
) -> None:
    study, bare = asked(name, options, unit, read), not get_protocol(name).TRAITS.private
    rehearsal = RehearsalOptions(parties=PARTIES, no_privacy=bare, a_priori_above_target=True)
    data, folder = tmp_path / "v.csv", tmp_path / "out"
    folder.mkdir()
    data.write_text("age\n" + "\n".join(str(20 + 7 * place % 71) for place in range(80)))
    plan = planned(study, bare)
    if isinstance(plan, str):
        with pytest.raises(InputError) as refused:
            run_local_study(study, data, rehearsal, folder, json=True)
        assert str(refused.value) == plan
        assert not list(folder.iterdir())
        return
    capsys.readouterr()
    if unit == "record" and not has_room(plan):
        # Twenty records of a party need more room than the plan was asked to have: nothing is begun.
        with pytest.raises(InputError, match=r"largest_value|largest_weight|weight 1"):
            run_local_study(study, data, rehearsal, folder, json=True)
        return
    run_local_study(study, data, rehearsal, folder, json=True)
    result = json.loads(capsys.readouterr().out)
    receipt = str(folder / "receipt.json")
    assert result["parties_counted"] == PARTIES
    # One in 1e9 is so far off, and what a grid or a quantiser adds.
    assert abs(result["estimate"] - result["true_mean"]) <= 6.1 * result["standard_error"] + 0.5
    everyone = answered(capsys, "verify", "receipt", receipt)
    assert everyone["max_epsilon"] == result["epsilon"]
    counted = read is not None and already_public(plan.protocol, read) is None
    assert ("messages intercepted" in everyone["adversary"]) == counted
    assert faults("receipt", json.loads(Path(receipt).read_text())) == []
    one = answered(capsys, "verify", "receipt", receipt, "--corrupt", "1")
    assert number(one["max_epsilon"]) <= number(everyone["max_epsilon"]) * (1 + 1e-9)
    assert all(number(mu) >= 0 for mu in one["mu_upper"])
    if one["numbers"] == "exact":
        nats = answered(capsys, "verify", "receipt", receipt, "--corrupt", "1", "--prior-sd", "0.3")["mutual_information_nats"]
        assert all(number(each) >= 0 for each in nats)
    main(["verify", "receipt", receipt, "--report", str(folder / "why.html")])
    assert "</html>" in (folder / "why.html").read_text()
    attacked = ["verify", "attack", receipt, "--target", "3", "--corrupt", "1", "--trials", "200"]
    if (
        name in NO_ATTACK
        or (plan.protocol.traits.attack.linear(plan.protocol) is None and name != "packed-sharing")
        or is_ball(plan)
    ):
        assert any(text in refusal(capsys, *attacked) for text in REFUSED)
    else:
        assert not answered(capsys, *attacked)["flagged"]


def planned(study: StudyTerms, bare: bool) -> Plan | str:
    """The plan, or why there is none."""
    try:
        return study.plan(PARTIES, no_privacy=bare)
    except InputError as error:
        return str(error)


def has_room(plan: Plan) -> bool:
    """For as many records as each party has here."""
    try:
        plan.require_room(80 / PARTIES)
    except InputError:
        return False
    return True


def is_ball(plan: Plan) -> bool:
    """Packed sharing on a ball; asked for one, it takes another region where the study's domain needs that."""
    return getattr(plan.protocol, "region", None) == BALL


def number(told: Any) -> float:
    return math.inf if told == "inf" else float(told)
