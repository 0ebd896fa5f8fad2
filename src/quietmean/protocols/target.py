"""The target of a plan: privacy, number of parties, dropouts.

Eavesdroppers that a target is about: besides colluding parties, the adversary reads messages between honest ones.

What a party sends in one round counts as one message to all (IncA, sections 2.3 and 4.1). Which messages are read
is independent of values, of the graph and of who colludes; the coalition may be chosen with all of this in sight.

* A number: each message is read with that chance, independently. The set is drawn from the public seed of a study before it
  starts, by a stream of its own, and what is said of the study is about that set (Definition 2.2 takes a set as given). Nobody
  else who listens is bound to it: what holds for all sets is the guaranteed figure.
* ``all-after-first``: only the messages of the first round are private, all later ones are read (ADQSP, section VI-B).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

from quietmean.core.domain import Neighbouring, PrivacyUnit, counted_text, half_range
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_class
from quietmean.core.readable import a_coordinate, delta_shown
from quietmean.core.schema import number_shown, refuse_unknown, require_delta, require_number, require_usual, wrong_field
from quietmean.protocols.committee_size import Committee
from quietmean.protocols.fields import optional_choice, optional_field, required_field

Eavesdropping: TypeAlias = float | str

ALL_AFTER_FIRST: Final = "all-after-first"
_CHOICES = f'Choose the chance that a message is read, above 0 and at most 1, such as 0.5, or "{ALL_AFTER_FIRST}"'


def require_eavesdropping(given: object) -> None:
    """Raises :class:`InputError` for anything but a chance above 0 and at most 1, or :data:`ALL_AFTER_FIRST`."""
    if given == ALL_AFTER_FIRST:
        return
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"eavesdropping is {str(given)[:40]!r}. {_CHOICES}.")
    if not 0 < given <= 1:
        raise InputError(f"eavesdropping is {number_shown(given)}. {_CHOICES}.")


def read_eavesdropping(text: str | None) -> Eavesdropping | None:
    """Read the text of an option; None without one. Raises :class:`InputError` for what it cannot be."""
    if text is None:
        return None
    try:
        eavesdropping: Eavesdropping = float(text)
    except ValueError:
        eavesdropping = text
    require_eavesdropping(eavesdropping)
    return eavesdropping


def is_random(eavesdropping: Eavesdropping | None) -> bool:
    """Is it chance which messages are read? Then a figure of one study is about one set only."""
    return eavesdropping is not None and eavesdropping != ALL_AFTER_FIRST


def eavesdropping_text(eavesdropping: Eavesdropping) -> str:
    """Who reads what, one clause."""
    if eavesdropping == ALL_AFTER_FIRST:
        return "all messages after the first round are read"
    return f"each message is read with a chance of {eavesdropping:g}"


# The largest epsilon: beyond it noise is smaller than any grid.
MOST_EPSILON = 1e9
# No L1 norm is below its L2 norm; both are computed.
_L1_SLACK = 1e-9


# Types by their annotations.
_KINDS: dict[Any, type] = {"int": int, "float": float, "float | None": float, "int | None": int}


@python_class
@dataclass(frozen=True)
class Target:
    """The target of a plan. ``sensitivity``: L2 change of a party's value when one protected unit is replaced, or under
    ``neighbouring`` add-remove when one record is added or removed; no weight may then depend on the records.

    ``colluding`` parties combine all that they see; a fraction ``dropouts`` of the parties drops out permanently during the
    study. Raises :class:`InputError` for numbers outside their ranges.

    ``nats``: instead of epsilon, which is then infinite: what ``colluding`` parties may learn of a coordinate of another
    party's value, as mutual information of independent normal values of standard deviation :attr:`prior_sd`. It is an average
    over values and no differential privacy; the mean is then exact.

    ``eavesdropping``: the adversary also reads messages between honest parties, each with that chance, or "all-after-first"; see
    :mod:`quietmean.protocols.target`.

    ``committee``: its members open the sum of what ``parties`` contribute, once and in one message each. ``colluding`` is then
    how many of the members collude, with all other contributors.

    ``l1``: the L1 change of a party's whole value where ``sensitivity`` is the L2 one, in the same units and before rounding: a
    bound, what Laplace noise follows from. None where nothing is known, and a protocol that needs it refuses. ``rounded``: how
    many coordinates rounding may change by one more step each, by default every one. With 0 every unit lies on the grid already.

    ``by_folder``: messages are files in a folder, which their receivers can open at any later time: a gate counts them as read.
    """

    parties: int
    epsilon: float
    delta: float
    dimension: int = 1
    sensitivity: float = 1.0
    colluding: int = 1
    dropouts: float = 0.0
    unit: PrivacyUnit = PrivacyUnit.PARTY
    neighbouring: Neighbouring = Neighbouring.REPLACEMENT
    nats: float | None = None
    eavesdropping: Eavesdropping | None = None
    committee: Committee | None = None
    by_folder: bool = False
    l1: float | None = None
    rounded: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type in _KINDS:
                require_number(field.name, getattr(self, field.name), _KINDS[field.type])
        if self.parties < 2:
            have = "party has" if self.parties == 1 else "parties have"
            raise InputError(f"{self.parties} {have} nobody to compute with. Give at least 2 parties.")
        if self.nats is not None:
            self._check_nats(self.nats)
        elif not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(f"epsilon is {self.epsilon:g}. Choose a finite number > 0, for example 1.")
        elif self.epsilon > MOST_EPSILON:
            raise InputError(f"epsilon is {self.epsilon:g}: that promises nothing. Choose {MOST_EPSILON:g} at most, such as 1.")
        require_delta(self.delta)
        if self.dimension < 1:
            raise InputError(f"dimension is {self.dimension}. Choose 1 or more.")
        if not (math.isfinite(self.sensitivity) and self.sensitivity > 0):
            raise InputError(f"sensitivity is {self.sensitivity:g}. Choose a finite number > 0.")
        if self.l1 is not None:
            self._check_l1(self.l1)
        if self.rounded is not None and self.rounded < 0:
            raise InputError(f"rounded is {self.rounded} coordinates. Choose 0 or more, or leave it out.")
        for name in (*(() if self.nats is not None else ("epsilon",)), "sensitivity", "parties", "dimension"):
            require_usual(name, getattr(self, name))
        if self.colluding < 0:
            raise InputError(f"{self.colluding} parties colluding is impossible. Choose 0..{self.parties - 1}.")
        if self.committee is not None:
            self._check_committee(self.committee)
        elif self.colluding >= self.parties:
            raise InputError(
                f"{self.colluding} of {self.parties} parties colluding leaves nobody honest. Choose 0..{self.parties - 1}."
            )
        if self.neighbouring == Neighbouring.ADD_REMOVE and self.unit == PrivacyUnit.PARTY:
            raise InputError(
                f"neighbouring is {self.neighbouring}, but it is public who takes part. Choose {Neighbouring.REPLACEMENT}, or "
                "protect records with unit record."
            )
        if not 0 <= self.dropouts < 1:
            raise InputError(f"dropouts of {self.dropouts:g} are not a fraction. Choose 0 <= dropouts < 1.")
        if self.eavesdropping is not None:
            require_eavesdropping(self.eavesdropping)

    def _check_committee(self, committee: Committee) -> None:
        if self.colluding != committee.colluding:
            raise InputError(
                f"colluding is {self.colluding}, but of the committee {committee.colluding} may collude, with all other "
                "contributors. Leave colluding out."
            )
        if committee.minimum is not None and committee.minimum > self.parties:
            raise InputError(
                f"the committee has a minimum of {committee.minimum} contributions, and {self.parties} may contribute. Choose "
                f"{self.parties} or fewer."
            )
        for name in ("nats", "eavesdropping"):
            if getattr(self, name) is not None:
                raise InputError(f"{name} has no effect in a committee. Leave it out, or let the parties compute without one.")

    def _check_l1(self, l1: float) -> None:
        if not (math.isfinite(l1) and l1 >= self.sensitivity * (1 - _L1_SLACK)):
            raise InputError(f"l1 is {l1:g}, below the sensitivity {self.sensitivity:g}. Give the L1 change of a value, or none.")

    def _check_nats(self, nats: float) -> None:
        if not (math.isfinite(nats) and nats > 0):
            raise InputError(
                f"nats is {nats:g}. Choose a finite number > 0, for example 0.4: how much others may learn on average."
            )
        if self.epsilon != math.inf:
            raise InputError(f"nats {nats:g} cannot go with epsilon {self.epsilon:g}: a target is in one of them. Leave one out.")
        if self.unit != PrivacyUnit.PARTY:
            raise InputError(f"nats are about a party's whole value, and the unit is {self.unit}. Choose unit party.")

    @property
    def l1_change(self) -> float:
        """The L1 change that Laplace noise has to hide. Raises :class:`InputError` where nothing is known of it."""
        if self.l1 is None and self.dimension > 1:
            raise InputError("noise is laplace, but what one unit changes in L1 norm is not known here. Leave noise out.")
        return self.sensitivity if self.l1 is None else self.l1

    @property
    def prior_sd(self) -> float:
        """The standard deviation of values that :attr:`nats` are about: see :func:`~quietmean.core.domain.half_range`."""
        return half_range(self.sensitivity)

    @property
    def in_words(self) -> str:
        """What is asked for, in words."""
        if self.nats is not None:
            return nats_in_words(self.nats)
        return f"epsilon {self.epsilon:g} (delta {delta_shown(self.delta)})"

    def describe(self) -> dict[str, Any]:
        """The target as plain JSON data."""
        return {
            "parties": self.parties,
            **({"epsilon": self.epsilon} if self.nats is None else {"nats": self.nats}),
            "delta": self.delta,
            "dimension": self.dimension,
            "sensitivity": self.sensitivity,
            "colluding": self.colluding,
            "dropouts": self.dropouts,
            "unit": str(self.unit),
            "neighbouring": str(self.neighbouring),
            **({} if self.eavesdropping is None else {"eavesdropping": self.eavesdropping}),
            **({} if self.committee is None else {"committee": self.committee.describe()}),
            **({"by_folder": True} if self.by_folder else {}),
            **({} if self.l1 is None else {"l1": self.l1}),
            **({} if self.rounded is None else {"rounded": self.rounded}),
        }

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Target:
        """The inverse of :meth:`describe`. Raises :class:`InputError` for a missing, wrong or unknown field."""
        refuse_unknown("target", raw, [field.name for field in fields(cls)])
        return cls(
            parties=required_field(raw, "parties", int),
            epsilon=math.inf if "nats" in raw and "epsilon" not in raw else required_field(raw, "epsilon", float),
            delta=required_field(raw, "delta", float),
            dimension=optional_field(raw, "dimension", int, 1),
            sensitivity=optional_field(raw, "sensitivity", float, 1.0),
            colluding=optional_field(raw, "colluding", int, 1),
            dropouts=optional_field(raw, "dropouts", float, 0.0),
            unit=optional_choice(raw, "unit", PrivacyUnit, PrivacyUnit.PARTY),
            neighbouring=optional_choice(raw, "neighbouring", Neighbouring, Neighbouring.REPLACEMENT),
            nats=required_field(raw, "nats", float) if "nats" in raw else None,
            eavesdropping=raw.get("eavesdropping"),
            committee=_read_committee(raw["committee"]) if "committee" in raw else None,
            by_folder=optional_field(raw, "by_folder", bool, False),
            l1=required_field(raw, "l1", float) if "l1" in raw else None,
            rounded=required_field(raw, "rounded", int) if "rounded" in raw else None,
        )

    @property
    def responding(self) -> int:
        """How many parties stay, at least 1."""
        return max(self.parties - int(self.dropouts * self.parties + 1e-9), 1)

    @property
    def value_variance(self) -> float:
        """Per coordinate, of values spread uniformly over the domain: the assumption that turns lost values into an error."""
        return (self.sensitivity**2 / self.dimension) / 12.0

    def responding_with(self, indispensable: int) -> dict[int, float]:
        """How many parties respond, with which probability, if ``indispensable`` ones (0 or 1) always stay."""
        one_more = indispensable * (1 - self.responding / self.parties)
        chances = {self.responding: 1 - one_more, self.responding + 1: one_more}
        return {count: chance for count, chance in chances.items() if chance > 0}

    def dropout_bias(self, responding: float) -> float:
        """Mean squared error per coordinate of the mean of ``responding`` values for that of all."""
        return self.value_variance * (1.0 / responding - 1.0 / self.parties)


def _read_committee(raw: Any) -> Committee:
    if not isinstance(raw, Mapping):
        raise wrong_field("committee", raw, "an object")
    return Committee.parse(raw)


# The largest usual epsilon: e^10 is 22 000, so a larger one guarantees next to nothing.
LARGEST_USUAL_EPSILON = 10.0


def nats_in_words(nats: float) -> str:
    """What a target in nats asks for, in words."""
    return f"the exact mean for at most {nats:g} nats a coordinate, no differential privacy"


def budget_warnings(target: Target, records: float | None = None) -> list[str]:
    """What a data-protection officer would object to in a budget, a sentence each. ``records``: of all parties, if known."""
    warnings = []
    counted = "parties" if records is None else counted_text(target.unit)
    units = target.parties if counted == "parties" or records is None else records
    if units and target.delta >= 1 / units:
        warnings.append(
            f"delta {target.delta:g} is not below 1 / {units:g} {counted}: a mechanism that publishes one of them in the clear "
            "would satisfy it, choose a much smaller one, for example 1e-6"
        )
    if target.nats is not None:
        warnings.append(
            f"{target.nats:g} nats {a_coordinate(target.dimension)} are an average over values, and no differential privacy: "
            "epsilon is infinite, and no budget counts this study"
        )
    elif target.epsilon > LARGEST_USUAL_EPSILON:
        warnings.append(
            f"epsilon {target.epsilon:g} is above {LARGEST_USUAL_EPSILON:g}: what is published may be e^{target.epsilon:g} times "
            "as likely with one value as with another, which protects next to nothing"
        )
    return warnings


def colluding_count(parties: int, colluding: float) -> int:
    """The number of colluders from a number, or from a fraction below 1 (rounded up).

    Raises :class:`InputError` for a number above 1 that is not whole, and for what is not a number.
    """
    require_number("parties", parties, int)
    require_number("colluding", colluding, float)
    require_usual("parties", parties)
    if not math.isfinite(colluding):
        raise InputError(f"colluding is {colluding:g}. Give how many parties may collude, or a fraction below 1.")
    if colluding < 1:
        return math.ceil(parties * colluding - 1e-9)
    if colluding != int(colluding):
        raise InputError(f"{colluding:g} colluding parties are neither a whole number nor a fraction below 1. Choose one.")
    return int(colluding)
