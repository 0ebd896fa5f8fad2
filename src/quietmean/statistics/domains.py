"""Where the scaled encodings of a feature lie, of one record and of sums of them."""

from __future__ import annotations

from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.mixtures import Sums
from quietmean.statistics.statistic import Feature


def domain_of_sums(feature: Feature, scale: float) -> InputDomain:
    """The domain of sums of rows, no longer than one encoding may be."""
    largest = min(feature.domain.largest, feature.length)
    return InputDomain((Sums(size=feature.size, length=feature.length, largest_coordinate=largest, scale=scale),))


def scaled_domain(feature: Feature, scale: float) -> InputDomain:
    """The domain of encodings times a scale. Raises :class:`InputError` where the feature states a domain that is not theirs."""
    domain = feature.domain
    if domain.size != feature.size or domain.diameter > feature.sensitivity * (1 + 1e-9):
        raise InputError(
            f"{type(feature).__name__} of sensitivity {feature.sensitivity:g} states a domain of diameter "
            f"{domain.diameter:g} and {domain.size} coordinates. State the domain of its encodings."
        )
    return domain.times(scale)
