"""Our frames over Flower's star against Flower's SecAgg+ workflow: time, bytes, error and epsilon of one round, one client gone.

10 clients, 1000 coordinates. Both in one process: seconds are processor time of one thread. Ours writes its state durably and
makes each client anew for each message, as Flower does; Flower's messages go through protobuf, which is counted apart. SecAgg+
adds no noise: its mean of the clients' updates is exact to rounding and has no epsilon; ours is over the whole session of 3
rounds. ``make bench-flower`` names the Python that has Flower.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from benchmarks.measuring import FLOWER, flower

from quietmean.core.party import Vector
from quietmean.flower import FlowerAgreement, Home, Relay, StarParty, make_home
from quietmean.flower.site import AGREEMENT, SITE
from quietmean.sessions import SessionAccount
from support.flower_star import UNCHARGED

PARTIES, DIMENSION, ROUNDS = 10, 1000, 3
EPSILON, DELTA = 4.0, 1e-5
GONE = 0


def make_agreement(root: Path) -> FlowerAgreement:
    keys = {make_home(root / f"new-{number}"): root / f"new-{number}" for number in range(PARTIES)}
    terms = {"dimension": DIMENSION, "rounds": ROUNDS, "clip": math.sqrt(DIMENSION)}
    agreement = FlowerAgreement.make(list(keys), epsilon=EPSILON, delta=DELTA, **terms)  # type: ignore[arg-type]
    for number, key in enumerate(agreement.identities):
        home = keys[key].rename(root / str(number))
        agreement.save(home / AGREEMENT)
        (home / SITE).write_text(UNCHARGED)
    return agreement


@pytest.mark.slow
def test_a_round_beside_secagg_plus(tmp_path: Path, table: Callable[[str], None]) -> None:
    values: Vector = np.sin(np.arange(DIMENSION)[None, :] + 7.0 * np.arange(PARTIES)[:, None])
    agreement = make_agreement(tmp_path)
    seconds, sent = np.zeros(PARTIES), np.zeros(PARTIES)
    gone: set[int] = set()

    def exchange(requests: Mapping[int, bytes], begins: bool) -> Mapping[int, bytes]:
        answers = {}
        for party, raw in requests.items():
            if party not in gone:
                begun = time.process_time()
                answers[party] = StarParty(Home(tmp_path / str(party))).answer(raw, lambda: np.array(values[party]))  # noqa: B023
                seconds[party] += time.process_time() - begun
                sent[party] += len(answers[party])
        return answers

    relay = Relay(agreement, exchange)
    relay.meet(range(PARTIES))
    # Who is who is asked once for all rounds.
    seconds[:], sent[:] = 0.0, 0.0
    gone.add(GONE)
    begun = time.process_time()
    found = relay.mean(1)
    server = time.process_time() - begun - seconds.sum()
    staying = [party for party in range(PARTIES) if party != GONE]
    error = float(np.sqrt(((found.mean - values[staying].mean(axis=0)) ** 2).mean()))
    epsilon = SessionAccount(agreement.terms, Home(tmp_path / "1").account).terms.charge(ROUNDS).epsilon(DELTA)
    rows = [("quietmean over the star", server, seconds[staying].mean(), sent[staying].mean(), error, epsilon)]
    theirs = flower(parties=PARTIES, dimension=DIMENSION, shares=5, threshold=3, dropped=1)
    if theirs is not None:
        cost = (theirs["server_seconds"], theirs["client_seconds"], theirs["client_bytes_sent"], theirs["error"], math.inf)
        rows.append(("Flower's SecAgg+", *cost))
    table(f"{'':<26} {'server':>10} {'client':>11} {'sent':>10} {'error':>9} {'epsilon':>8}")
    for label, one, client, size, wrong, loss in rows:
        table(f"{label:<26} {one:8.3f} s {1000 * client:8.1f} ms {size / 1000:7.1f} kB {wrong:9.1e} {loss:8.3g}")
    assert found.weight == len(staying)
    assert epsilon <= EPSILON
    if theirs is None:
        pytest.skip(f"{FLOWER} is not set: only our side was measured, run make bench-flower")
