"""An attack on one contributor by all others and c_m members: they see of it what the certificate says, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.party import NoiseGroup, Units
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.design import charge, encode
from quietmean.protocols.committee.result import read_result
from quietmean.protocols.packed_sharing.encoding import rounded_sensitivity
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.randomness import Seed
from support.committee_run import CommitteeRun
from support.committee_world import CommitteeWorld, OwnNoise

DIMENSION = 3000
WORLD = CommitteeWorld(Committee(9, 2, 2), contributors=3, dimension=DIMENSION)


def encoded(number: int) -> Units:
    return encode(WORLD.parameters, WORLD.value(number), 1.0, Seed.public("contribution", number))


def noise_of(member: int) -> Units:
    scale = WORLD.parameters.scale
    return OwnNoise(Seed.public("run", member)).discrete(NoiseGroup.INDEPENDENT, 0, scale, DIMENSION)


@pytest.mark.parametrize("absent", [(), (0, 4)])
def test_what_everybody_else_learns_is_between_nine_tenths_of_the_certificate_and_it(absent: tuple[int, ...]) -> None:
    files = {number: WORLD.contribution(number) for number in range(3)}
    run = CommitteeRun(WORLD, files, gone=dict.fromkeys(absent, 1)).run()
    state = next(state for state in run.states if state.has_result)
    result = read_result(WORLD.session, state.result.content)
    shares = {one.member: np.frombuffer(one.share, dtype="<u4") for one in result.sums}
    opened = open_sums(WORLD.parameters.packing, shares, DIMENSION)
    # The colluders' noise is in the sum, which is their best choice.
    known = sum(noise_of(member) for member in result.noise[: WORLD.parameters.colluding])
    left = opened - encoded(1) - encoded(2) - known
    deviation = float((left - encoded(0)).std())
    seen = rounded_sensitivity(WORLD.parameters.numbers, np.sqrt(DIMENSION)) / deviation
    certificate = charge(WORLD.parameters, float(np.sqrt(DIMENSION))).mu
    # The deviation of 3000 numbers is off by 1.3 %: three times that is allowed above.
    assert 0.9 <= seen / certificate <= 1.04
