"""An entry for the public registry of differential privacy deployments, from a receipt.

The registry is that of OpenDP and NIST (Nanayakkara, Ghazi and Vadhan, arXiv 2509.13509). Its fields are those of the schema in
github.com/opendp/deployments-registry-data. Figures are computed again from the execution. What only people know is left empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietmean.core.assumptions import Assumption, Key, for_unit, ranked
from quietmean.core.codec import digest
from quietmean.core.domain import Neighbouring, PrivacyUnit, counted_text
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import package_version
from quietmean.core.noise_law import NoiseKind
from quietmean.core.output import Output, mapping_of
from quietmean.core.readable import count_of, epsilon_text, listed, printable, some_of
from quietmean.core.schema import nearest
from quietmean.planning.gate import GateRecord, as_promised
from quietmean.privacy import CoalitionCertificate, PrivacyAnalysis
from quietmean.privacy.analysis import privacy_facts
from quietmean.protocols.execution import Execution, read_execution
from quietmean.protocols.execution_files import OneShot
from quietmean.protocols.fields import Hints
from quietmean.protocols.mechanism import Mechanism
from quietmean.protocols.traits import Server
from quietmean.statistics.kinds.synthetic_table import SyntheticTable

END = ".yaml"
# How people name such a file besides.
ALSO = ".yml"
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
# What nobody but people knows: the group of each field in the entry.
_PEOPLE = {
    "data_curators": "basic",
    "intended_use": "basic",
    "data_product_region": "basic",
    "data_product_sector": "basic",
    "justification": "implementation",
    "sources": "administrative",
    "registry_authors": "administrative",
}
_LISTS = ("data_curators", "registry_authors")
_BEGINS = b'url_slug: "quietmean-'
# A date that the registry's template has where none is known.
_NO_DATE = "1900-01-01"
_MOST_ASKED, _LONGEST_NAME = 3, 120
# What two computations of one figure may differ by.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class RegistryEntry:
    """The entry as JSON data; ``empty``: fields that people fill in before they send it."""

    document: Mapping[str, Any]
    empty: tuple[str, ...]

    def __repr__(self) -> str:
        return self.yaml().decode()

    def yaml(self) -> bytes:
        """The file to send, in UTF-8."""
        choose = [f"# data_product_sector: one of {', '.join(SECTORS)}"] * ("data_product_sector" in self.empty)
        return "\n".join([*_lines(self.document), *choose, ""]).encode()

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write FILE.yaml; with ``force`` in the place of an earlier entry. Raises :class:`InputError` for any other file."""
        entry_at(Path(path), force, "", "force=True").write(self.yaml())


def entry_at(path: Path, force: bool, option: str = "--report", saying_so: str = "--force") -> Output:
    """Where an entry goes: no file is replaced but an earlier entry, with ``force``."""

    def ours(content: bytes) -> bool:
        return content.startswith(_BEGINS)

    return Output(path, "the registry entry", option, kind=ours, force=force, saying_so=saying_so, ends=(END,))


def registry_entry(receipt: Mapping[str, Any], **filled: str | Iterable[str]) -> RegistryEntry:
    """Make the entry of a study from its receipt; ``filled``: by field, what people know, such as ``intended_use``.

    Raises :class:`InputError` for a file without a result, for one that states less than its execution cost, for a study without
    privacy, and for an unknown field.
    """
    result, hints = receipt.get("result"), Hints.of(receipt)
    if not isinstance(result, Mapping) or hints.delta is None or hints.colluding is None:
        raise InputError("this file has no result that an entry could be of. Give the receipt of a study that has ended.")
    happened = read_execution(receipt)
    if isinstance(happened, OneShot):
        raise InputError("this file holds noise without a protocol. Give the receipt of a study that has ended.")
    GateRecord.of_receipt(receipt, happened)
    execution = as_promised(receipt, happened)
    return _Source(receipt, result, execution, hints.colluding, execution.privacy(hints.delta)).entry(filled)


@dataclass(frozen=True, eq=False)
class _Source:
    """What an entry is made from: the ``receipt``, its ``result``, and what is computed again of its ``execution``."""

    receipt: Mapping[str, Any]
    result: Mapping[str, Any]
    execution: Execution
    colluding: int
    analysis: PrivacyAnalysis

    def entry(self, filled: Mapping[str, str | Iterable[str]]) -> RegistryEntry:
        certificate = self.analysis.coalitions(self.colluding)
        self._require_true(certificate)
        finished = str(mapping_of(self.receipt.get("origin")).get("finished", ""))[:10]
        deployment = {
            "basic": self._basic(finished or _NO_DATE),
            "dp_variant": self._variant(),
            **self._protection(certificate),
            **self._release(certificate),
            "administrative": {"sources": "", "notes": self._notes(), "registry_authors": [""]},
        }
        known = _filled(deployment, filled)
        document = {
            "url_slug": f"quietmean-{digest(self.receipt)[:16]}",
            "status": "Draft",
            "tier": 3,
            "deployment": deployment,
        }
        empty = [*(["publication_date"] if not finished else []), *(name for name in _PEOPLE if name not in known)]
        return RegistryEntry(document, tuple(empty))

    def _require_true(self, certificate: CoalitionCertificate) -> None:
        """Raises :class:`InputError` for a study without privacy, and for a receipt that states less than it cost."""
        found, delta = self._epsilon(certificate), self.analysis.delta
        if math.isinf(found):
            raise InputError("nothing bounds what this study tells, and the registry is of private ones. Give another receipt.")
        for name, cost in (("epsilon", certificate.max_epsilon), ("epsilon_a_priori", certificate.epsilon_a_priori)):
            stated = self.result.get(name)
            number = float(stated) if isinstance(stated, int | float) else math.nan
            if cost is not None and not (math.isclose(cost, number, rel_tol=_ROUNDING) and self.result.get("delta") == delta):
                said = "does not state" if math.isnan(number) else f"states {number:g} as"
                raise InputError(
                    f"the receipt {said} {name}, and its execution costs {epsilon_text(cost)} at delta {delta:g}. Ask its "
                    "party for an unchanged one."
                )

    @staticmethod
    def _epsilon(certificate: CoalitionCertificate) -> float:
        """What was guaranteed before the start, or else what was realised."""
        return certificate.max_epsilon if certificate.epsilon_a_priori is None else certificate.epsilon_a_priori

    @property
    def _protocol(self) -> Mechanism:
        return self.execution.protocol

    @property
    def _unit(self) -> str:
        return str(mapping_of(self.result.get("certificate")).get("unit", PrivacyUnit.PARTY))

    def _basic(self, finished: str) -> dict[str, Any]:
        asked = [one for one in self.result.get("statistics", ()) if isinstance(one, Mapping)]
        kinds = {one.get("kind") for one in asked}
        what = some_of([printable(str(one.get("name", ""))) for one in asked], _MOST_ASKED) or "a mean of vectors"
        parties = count_of(self.execution.parties, "party", "parties")
        return {
            "name": f"{what} of {parties}"[:_LONGEST_NAME],
            "data_curators": [""],
            "description": f"One study of {parties} by quietmean ({self._protocol.name}, {self._protocol.traits.trust}): {what}.",
            "intended_use": "",
            "data_product_type": "Synthetic data" if kinds == {SyntheticTable.name} else "Summary statistics",
            "data_product_region": "",
            "publication_date": finished,
        }

    def _variant(self) -> dict[str, Any]:
        columns = [printable(str(name)) for name in self.result.get("columns", ())]
        within = f" with {listed(columns)}, each within public bounds or levels" if columns else ""
        rows = counted_text(self._unit) if self._unit != PrivacyUnit.PARTY else "values"
        return {
            "variant_name": "Approximate DP",
            "data_domain": f"{rows.capitalize()} of {self.execution.parties} parties{within}.",
            "unprotected_quantities": self._assumed(Key.PUBLIC),
        }

    def _protection(self, certificate: CoalitionCertificate) -> dict[str, Any]:
        epsilon, delta = self._epsilon(certificate), self.analysis.delta
        charge = self.analysis.terms.charge(certificate.max_mu)
        delta = delta if charge.delta_below is None else charge.delta_below
        facts = [f"{fact.sentence}." for fact in privacy_facts(self.analysis, certificate, self._unit)]
        pure = [] if charge.delta_below is None else [f"Epsilon is pure but for the sampler, of which delta is below {delta:g}."]
        return {
            "privacy_loss": {
                "privacy_unit": self._unit.capitalize(),
                "privacy_unit_details": self._assumed(Key.NEIGHBOURS, Key.PERSON),
                "privacy_parameters": {"epsilon": float(epsilon_text(epsilon)), "delta": delta},
                "privacy_parameters_details": "\n".join([*(fact[0].upper() + fact[1:] for fact in facts), *pure]),
            },
            "deployment_model": {
                **self._model(certificate),
                "actors": "\n".join(f"- {one.held_by}: {one.text}" for one in self._of_people()),
                "release_type": "One release",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
        }

    def _model(self, certificate: CoalitionCertificate) -> dict[str, Any]:
        traits = self._protocol.traits
        if traits.server == Server.CURATOR:
            return {"model_name": "Central", "model_name_details": f"A trusted party sees every value: {traits.trust}."}
        alone = self.analysis.alone <= certificate.max_epsilon * (1 + _ROUNDING)
        own = "Each party adds all the noise that protects it to its own sum, and trusts nobody."
        if alone and self._unit == PrivacyUnit.PARTY:
            return {"model_name": "Local", "model_name_details": own}
        shared = f"Distributed: records stay at their parties, and only a sum of all is opened ({traits.trust})."
        return {"model_name": "Federated", "model_name_details": own if alone else shared}

    def _release(self, certificate: CoalitionCertificate) -> dict[str, Any]:
        law = self._protocol.traits.checks.noise_law(self._protocol, self.execution.parties)
        laplace = law is not None and law.kind == NoiseKind.LAPLACE
        noise = "Laplace" if laplace else "Gaussian" if self._protocol.traits.gaussian_noise else "that of the protocol"
        add_up = "Pure epsilons add up over studies." if laplace else "Squares of mu add up over studies."
        relation = "added or removed" if self.execution.neighbouring == Neighbouring.ADD_REMOVE else "replaced"
        mechanisms = [
            f"Noise: {noise}. L2 sensitivity of the sum {self.execution.sensitivity:g}, of one {self._unit} {relation}.",
            f"Protocol: {self._protocol.name}: {self._protocol.traits.summary}.",
            f"Claim: {self.analysis.terms.definition}; figures are: {certificate.numbers}.",
            f"Software: quietmean {printable(str(mapping_of(self.receipt.get('origin')).get('quietmean', package_version())))}.",
            *self._assumed(Key.NUMBERS, Key.SAMPLER, Key.GENERATOR, Key.ROUNDING, Key.OVERFLOW, Key.MACHINES).splitlines(),
        ]
        return {
            "accounting": {
                "post_processing": "Estimates, intervals, tests and tables follow from the released sums and cost nothing.",
                "composition": "One release answers all questions, with one sensitivity for all of them together (mu = "
                f"{certificate.max_mu:.4f}, Gaussian differential privacy). {add_up}",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": self._assumed(Key.BOUNDS),
                "mechanisms": "\n".join(f"- {line}" for line in mechanisms),
                "justification": "",
            },
        }

    def _notes(self) -> str:
        return (
            f"Made from a receipt (SHA-256 of its canonical JSON: {digest(self.receipt)}). "
            "`quietmean verify receipt` computes the figures again."
        )

    def _assumptions(self) -> list[Assumption]:
        stated = mapping_of(self.result.get("certificate")).get("sites_per_person", 1)
        sites = stated if isinstance(stated, int) else 1
        return ranked(for_unit(self.analysis.coalitions(self.colluding).assumptions, self._unit, sites))

    def _assumed(self, *keys: Key) -> str:
        return "\n".join(one.text for one in self._assumptions() if one.key in keys)

    def _of_people(self) -> list[Assumption]:
        """What parties and servers must keep to."""
        keys = (Key.COLLUDING, Key.PASSIVE, Key.CURATOR, Key.AGGREGATOR, Key.KEYS, Key.ATTENDANCE, Key.LOGS, Key.HISTORY)
        return [one for one in self._assumptions() if one.key in keys]


def _filled(deployment: dict[str, Any], filled: Mapping[str, str | Iterable[str]]) -> set[str]:
    """Put what people know into the entry, and return which fields that is. Raises :class:`InputError` for other fields."""
    for name, given in filled.items():
        if name not in _PEOPLE:
            raise InputError(
                f"an entry has no field {name!r} to fill in{nearest(name, _PEOPLE)}. Choose of {', '.join(_PEOPLE)}."
            )
        value = [_lines_of(one) for one in ([given] if isinstance(given, str) else given)]
        if name == "data_product_sector" and value[0] not in SECTORS:
            raise InputError(f"data_product_sector is {value[0]!r}{nearest(value[0], SECTORS)}. Choose of {', '.join(SECTORS)}.")
        deployment[_PEOPLE[name]][name] = value if name in _LISTS else ", ".join(value)
    return {name for name in filled if "".join(filled[name])}


def _lines_of(text: object) -> str:
    return "\n".join(map(printable, str(text).split("\n")))


def _lines(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """JSON data as YAML: texts of several lines as blocks, all others in quotes, as the registry asks for."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield f"{indent}{key}:"
            yield from _lines(inner, f"{indent}  ")
        elif isinstance(inner, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {_scalar(each)}" for each in inner)
        elif isinstance(inner, str) and "\n" in inner:
            yield f"{indent}{key}: |"
            yield from (f"{indent}  {line}" for line in inner.split("\n"))
        else:
            yield f"{indent}{key}: {_scalar(inner)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        # YAML 1.1 reads a number with an exponent as one only with a point.
        digits, e, exponent = f"{value!r}".partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}"
    return json.dumps(value, ensure_ascii=False)
