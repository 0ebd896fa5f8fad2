"""The entry for the registry of deployments: by its schema for every protocol and unit, from recomputed figures, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from jsonschema import Draft7Validator

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.codec import to_plain
from quietmean.core.domain import PrivacyUnit
from quietmean.graphs import ExecutionTrace
from quietmean.protocols import Target, configure, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed
from quietmean.statistics import Column, Columns
from quietmean.statistics.registry import parse_statistic, read_text
from quietmean.statistics.workload import Workload
from quietmean.studies.outcome.outcome import StudyOutcome, conclude
from quietmean.studies.outcome.registry_entry import RegistryEntry, registry_entry
from support.outcomes import finished
from support.refusals import refused

PARTIES, DELTA = 6, 1e-6
SCHEMA = json.loads(Path(__file__).parent.parent.joinpath("data/deployments_registry.json").read_text())
ORIGIN = {"finished": "2026-11-30T20:34:23+00:00", "quietmean": "0.1.0"}


def receipt_of(name: str, unit: PrivacyUnit) -> dict[str, Any]:
    """What a study of one mean with this protocol would write, by its design and without a network."""
    workload = Workload(Columns([Column(name="x", low=0, high=1)]), (parse_statistic(read_text("mean(x)")),), unit)
    target = Target(PARTIES, 4.0, DELTA, workload.dimension, workload.sensitivity, colluding=1, unit=unit)
    asked = configure(name)
    design = asked.design(target)
    protocol = template_of(asked, target) if design is None else design.protocol
    trace = ExecutionTrace.everyone(protocol.rounds, PARTIES)
    weights = np.full(PARTIES, 1.0 if unit == PrivacyUnit.PARTY else 50.0)
    execution = Execution(protocol, protocol.draw_schedule(PARTIES, Seed.public("any")), trace, workload.sensitivity, weights)
    mean = np.full(workload.dimension, 0.5)
    return plain(conclude(workload, target, execution, mean))


def plain(outcome: StudyOutcome) -> dict[str, Any]:
    """The receipt as it is read from a file."""
    read: dict[str, Any] = json.loads(json.dumps(to_plain(outcome.receipt(ORIGIN))))
    return read


def faults(entry: RegistryEntry) -> list[str]:
    """What another library finds in the file: by the schema, and by the registry's rule that texts are quoted or blocks."""
    read = yaml.safe_load(entry.yaml())
    assert _ended(read) == _ended(entry.document)
    validator = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
    styles = {getattr(token, "style", None) for token in yaml.scan(entry.yaml())}
    return [
        *(f"{error.json_path}: {error.message}" for error in validator.iter_errors(read)),
        *map(str, styles - {None, "|", '"'}),
    ]


def _ended(value: Any) -> Any:
    """Without the ends of lines that blocks of YAML have."""
    if isinstance(value, dict):
        return {key: _ended(inner) for key, inner in value.items()}
    return (
        [_ended(inner) for inner in value] if isinstance(value, list) else value.rstrip("\n") if isinstance(value, str) else value
    )


@pytest.mark.parametrize("unit", PrivacyUnit)
@pytest.mark.parametrize("name", [name for name, kind in registry().items() if kind.TRAITS.has_transcript])
def test_every_protocol_and_unit_has_a_valid_entry_or_is_refused(name: str, unit: PrivacyUnit) -> None:
    receipt = receipt_of(name, unit)
    if not configure(name).traits.private:
        refused("nothing bounds what this study tells, and the registry is of private ones", registry_entry, receipt)
        return
    entry, promised = registry_entry(receipt), receipt["result"]["epsilon_a_priori"]
    assert faults(entry) == []
    deployment = entry.document["deployment"]
    loss, model = deployment["privacy_loss"], deployment["deployment_model"]["model_name"]
    # Without a promise it is what was realised.
    stated = receipt["result"]["epsilon"] if promised is None else promised
    assert 0 <= loss["privacy_parameters"]["epsilon"] - float(stated) <= 1e-4
    assert loss["privacy_parameters"]["delta"] == DELTA
    assert loss["privacy_unit"] == str(unit).capitalize()
    own = "Local" if unit == PrivacyUnit.PARTY else "Federated"
    # Of so few parties muffliato's figure is what each one's own noise gives.
    assert model == {"central-dp": "Central", "local-dp": own, "muffliato": own}.get(name, "Federated")
    assert name in deployment["implementation"]["mechanisms"]
    assert deployment["basic"]["publication_date"] == "2026-11-30"
    assert entry.empty[-1] == "registry_authors"


def test_private_counts_and_laplace_noise_are_told() -> None:
    """A count alone in its budget, whether somebody is there included."""
    frame = pl.DataFrame({"age": np.random.default_rng(3).uniform(0, 90, 600)})
    how: dict[str, Any] = {"protocol": "packed-sharing", "options": {"noise": "laplace"}, "count": "private"}
    study = qm.Study({"age": (0, 110)}, ["count(age, where=age >= 65)"], epsilon=1.0, delta=DELTA, **how)
    entry = study.run(frame, parties=6).registry_entry(data_curators=["North", "South"], intended_use="planning")
    deployment = entry.document["deployment"]
    assert faults(entry) == []
    assert "Noise: Laplace" in deployment["implementation"]["mechanisms"]
    assert "of one record added or removed" in deployment["implementation"]["mechanisms"]
    assert "Pure epsilons add up" in deployment["accounting"]["composition"]
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-12}
    assert deployment["basic"]["data_curators"] == ["North", "South"]
    assert not {"data_curators", "intended_use"} & set(entry.empty)


@pytest.fixture(scope="module")
def receipt() -> dict[str, Any]:
    return plain(finished("mean(x)", "crosstab(arm, yes)"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"result": {"epsilon": 0.1}}, "states 0.1 as epsilon, and its execution costs"),
        ({"result": {"epsilon": None}}, "does not state epsilon, and its execution costs"),
        ({"result": {"epsilon_a_priori": 0.01}}, "states 0.01 as epsilon_a_priori, and its execution costs"),
        ({"result": {"delta": 1e-3}}, "Ask its party for an unchanged one"),
        ({"sigma_star": 7.0}, "Ask its party for an unchanged one"),
        ({"sensitivity": 0.5}, "Ask its party for an unchanged one"),
        ({"certify": {"delta": 1e-2}}, "Ask its party for an unchanged one"),
        ({"certify": None}, "this file has no result that an entry could be of"),
        ({"result": None}, "this file has no result that an entry could be of"),
    ],
)
def test_an_altered_receipt_is_refused(receipt: dict[str, Any], change: dict[str, Any], words: str) -> None:
    changed = {name: receipt[name] | part if isinstance(part, dict) else part for name, part in change.items()}
    refused(words, registry_entry, receipt | changed)


@pytest.mark.parametrize(
    ("filled", "words"),
    [
        ({"curators": "North"}, "an entry has no field 'curators' to fill in"),
        ({"epsilon": "0.1"}, "an entry has no field 'epsilon' to fill in"),
        ({"data_product_sector": "Health"}, r"data_product_sector is 'Health' \(did you mean 'Healthcare'\?\)\. Choose of"),
    ],
)
def test_only_what_people_know_is_filled_in(receipt: dict[str, Any], filled: dict[str, str], words: str) -> None:
    refused(words, lambda: registry_entry(receipt, **filled))


def test_texts_of_strangers_stay_texts(receipt: dict[str, Any]) -> None:
    odd = 'no: [x] #"\\ \u2028\x85\x1b 🙂 ä'
    changed = receipt | {"origin": ORIGIN | {"quietmean": odd}, "result": receipt["result"] | {"columns": [odd, "- y"]}}
    entry = registry_entry(changed, intended_use=odd, sources=f"first\n{odd}")
    assert yaml.safe_load(entry.yaml())["deployment"]["basic"]["intended_use"] == odd.replace("\u2028\x85\x1b", "???")
    assert faults(entry) == []


def test_from_the_command(
    receipt: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("receipt.json").write_text(json.dumps(receipt))
    main(["verify", "receipt", "receipt.json", "--report", "entry.yaml"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Entry entry.yaml. Fill in data_curators, intended_use, data_product_region, data_product_sector" in said
    written = Path("entry.yaml").read_bytes()
    assert written == registry_entry(receipt).yaml()
    for words, sentence in (
        (["entry.yaml", "--colluding", "2"], "an entry states what the study promised, against no other adversary"),
        (["entry.yaml", "--ledger", "l", "--account", "a"], "account 'a' is shown on the page only"),
        (["entry.yml"], "entry.yml would hold the registry entry as YAML. Name it entry.yaml."),
    ):
        with pytest.raises(SystemExit):
            main(["verify", "receipt", "receipt.json", "--report", *words])
        assert sentence in capsys.readouterr().err
    # What somebody filled in stays.
    Path("entry.yaml").write_bytes(written.replace(b'intended_use: ""', b'intended_use: "planning"'))
    with pytest.raises(SystemExit):
        main(["verify", "receipt", "receipt.json", "--report", "entry.yaml"])
    assert "file entry.yaml exists already. Name another for the registry entry with --report" in capsys.readouterr().err
    main(["verify", "receipt", "receipt.json", "--report", "entry.yaml", "--force", "--json"])
    assert json.loads(capsys.readouterr().out)["registry_entry"]["file"] == "entry.yaml"
    assert Path("entry.yaml").read_bytes() == written
