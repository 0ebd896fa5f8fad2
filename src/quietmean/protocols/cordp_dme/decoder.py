"""From the sum of messages to the estimate. Late messages can be added."""

from __future__ import annotations

import numpy as np

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PartyId, Release, Vector
from quietmean.protocols.cordp_dme.design import shrinkage
from quietmean.protocols.cordp_dme.party import CordpDmeParameters, MeanDecoder


def decode_total(
    parameters: CordpDmeParameters, parties: int, vector: Vector, weight: float, responding: int | None = None
) -> Vector:
    """The estimate (d,) from the sums of messages (d,) and of weights, by the parameters' decoder.

    ``responding``: of how many parties; by default each weighs 1. Raises :class:`InputError` if that cannot be.
    """
    mean: Vector = vector / weight
    if parameters.decoder == MeanDecoder.UNBIASED or parameters.radius is None:
        return mean
    return mean * shrinkage_of(parameters, parties, vector.size, weight, responding)


def shrinkage_of(
    parameters: CordpDmeParameters, parties: int, dimension: int, weight: float, responding: int | None = None
) -> float:
    """1 / (1 + x), where x is the squared L2 error of the mean of all responders over radius^2 (CorDP-DME, Proposition 1).

    Public weights are a scale: a party of weight w holds the sum of w vectors in the ball, so the mean of all lies in the ball
    as well, whatever the weights; and the noise in the sum does not depend on them. With W the ``weight`` of all, the error is
    that noise over W^2, and of all multiples of the mean this one has the least worst-case error over the ball.

    Raises :class:`InputError` where the weights do not tell how many are ``responding``.
    """
    if parameters.radius is None:
        return 1.0
    number = round(weight) if responding is None else responding
    if not 1 <= number <= parties or (responding is None and abs(weight - number) > 1e-9 * parties):
        raise InputError(f"the weights sum to {weight:g}: say how many parties responded, or give every party weight 1")
    return shrinkage(dimension * parameters.noise_in_sum(parties, number) / weight**2, parameters.radius)


class LateDecoder:
    """Estimates that improve with every late message.

    Privacy is accounted as if all n messages arrived, so a late one costs nothing. Its shared noise cancels against that of the
    messages that arrived before. Raises :class:`InputError` if there is an aggregator, since late messages then go to it.
    """

    def __init__(self, parameters: CordpDmeParameters, parties: int) -> None:
        if parameters.aggregator is not None:
            raise InputError(f"party {parameters.aggregator} aggregates: late messages go to it, give no single ones")
        self._parameters = parameters
        self._parties = parties
        self._releases: dict[PartyId, Release] = {}

    def add(self, party: PartyId, release: Release) -> None:
        """Add one more message, with a vector (d,). The same message again changes nothing.

        Raises :class:`InputError` for an unknown party, and for a second, different message of a party.
        """
        if not 0 <= party < self._parties:
            raise InputError(f"party {party} does not exist: parties are numbered 0..{self._parties - 1}")
        earlier = self._releases.setdefault(party, release)
        if not np.array_equal(earlier.vector, release.vector) or earlier.weight != release.weight:
            raise InputError(f"party {party} sent two different messages: the second one would reveal more, keep the first")

    @property
    def responding(self) -> int:
        return len(self._releases)

    def estimate(self) -> Vector:
        """The estimate from all messages so far, shape (d,). Raises :class:`ProtocolFailure` if there are none."""
        if not self._releases:
            raise ProtocolFailure("no message has arrived: there is nothing to decode")
        # In the order of the parties: the same messages give the same sum to the last bit, in whatever order they came.
        releases = [self._releases[party] for party in sorted(self._releases)]
        vector: Vector = np.sum([release.vector for release in releases], axis=0)
        weight = sum(release.weight for release in releases)
        return decode_total(self._parameters, self._parties, vector, weight, len(releases))

    def predicted_mse(self) -> float:
        """Noise variance per coordinate of the unbiased mean of the messages so far, weights 1."""
        return self._parameters.noise_in_sum(self._parties, self.responding) / self.responding**2
