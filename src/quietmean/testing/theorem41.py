"""IncA, Theorem 4.1, evaluated literally: dense matrices straight from the paper's appendix A.2.

Shares no code with the engine and reads nothing but the plain JSON of an execution, so that an agreement between the two means
something. Cubic in (parties x rounds): for small executions only.

Deviations from the paper's print, all of them slips of it: the indices of D^O (a party uses row r of (c, Z) in its r-th online
round, r = 0, 1, ...), and that only receivers who are online, and parties that finish, show the adversary a message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular

from quietmean.core.arrays import Matrix

# Rows of (B, A), scaled to length 1, that are this close to the span of others are redundant.
_REDUNDANT = 1e-10


def theorem41(
    document: Mapping[str, Any], corrupt: Collection[int] = (), observed: Collection[tuple[int, int]] = ()
) -> dict[int, float]:
    """h' Sigma^-1 h for each honest party (mu^2 at sensitivity 1), from the JSON of an IncA execution.

    ``corrupt`` parties collude; ``observed`` holds the intercepted messages (i, t): y_i^(t). Raises ``ValueError`` unless both
    noise levels are positive, as the theorem demands.
    """
    if not (document["sigma_star"] > 0 and document["sigma_delta"] > 0):
        raise ValueError("Theorem 4.1 needs positive noise variances")
    values, noise = _linear_maps(document)
    rows = sorted(_observations(document, set(corrupt)) | set(observed))
    honest = [party for party in range(document["parties"]) if party not in corrupt]
    rounds = document["rounds"]
    own = np.array([[party * rounds + index for index in range(rounds)] for party in honest], dtype=int).ravel()
    b = np.array([values[t][i] for i, t in rows])[:, honest]
    a = np.array([noise[t][i] for i, t in rows])[:, own]
    leakage = _quadratic_forms(b, np.hstack([document["sigma_star"] * b, document["sigma_delta"] * a]))
    return dict(zip(honest, leakage.tolist(), strict=True))


def _injection(document: Mapping[str, Any]) -> tuple[Matrix, Matrix]:
    """The injection (c, Z), Examples 3.1 and 3.2 and Definition 3.3."""
    rounds, injection = document["rounds"], document["injection"]
    if injection == "early":
        return np.eye(rounds + 1)[0], np.vstack([np.ones((1, rounds)), -np.eye(rounds)])
    if injection == "incremental":
        z = np.zeros((rounds + 1, rounds))
        for index in range(rounds):
            z[index, index], z[index + 1, index] = 1.0, -1.0
        return np.full(rounds + 1, 1 / (rounds + 1)), z
    return np.array(injection["c"], dtype=float), np.array(injection["Z"], dtype=float)


def _mixing(document: Mapping[str, Any], t: int) -> Matrix:
    """W_t^O: Algorithm 2, lines 11 to 13 and 17."""
    online = document["online"][t]
    lost = {tuple(entry) for entry in document.get("lost", [])}
    w = np.zeros((document["parties"], document["parties"]))
    for i, neighbours in enumerate(document["neighbours"][t - 1]):
        if not online[i]:
            w[i, i] = 1.0
            continue
        for j in [i, *neighbours]:
            arrives = online[j] and (t, i, j) not in lost
            w[j if arrives else i, i] += 1.0 / (len(neighbours) + 1)
    for round_, i, _, _ in document.get("settled", []):
        if round_ == t:
            # The sender does not know yet that it arrived, and keeps it too.
            w[i, i] += 1.0 / (len(document["neighbours"][t - 1][i]) + 1)
    return w


def _linear_maps(document: Mapping[str, Any]) -> tuple[list[Matrix], list[Matrix]]:
    """B_t and A_t of equation (20), t = 0..T."""
    n, rounds, online = document["parties"], document["rounds"], document["online"]
    c, z = _injection(document)
    used = [0] * n
    injected = np.zeros((n, rounds))
    values: list[Matrix] = []
    noise: list[Matrix] = []
    for t in range(rounds + 1):
        d_c, zeta = np.zeros((n, n)), np.zeros((n, n * rounds))
        for i in range(n):
            if not online[t][i]:
                continue
            row = z[used[i]] if t < rounds else -injected[i]
            d_c[i, i] = c[used[i]]
            zeta[i, i * rounds : (i + 1) * rounds] = row
            injected[i] += row
            used[i] += 1
        w = _mixing(document, t) if t else np.zeros((n, n))
        values.append(w @ values[-1] + d_c if t else d_c)
        noise.append(w @ noise[-1] + zeta if t else zeta)
        for round_, i, _, later in document.get("settled", []):
            if later == t:
                share = 1.0 / (len(document["neighbours"][round_ - 1][i]) + 1)
                values[t][i] -= share * values[round_ - 1][i]
                noise[t][i] -= share * noise[round_ - 1][i]
    return values, noise


def _observations(document: Mapping[str, Any], corrupt: set[int]) -> set[tuple[int, int]]:
    """V_val of section 4.1 for collusion; without corrupt parties, what every eavesdropper sees."""
    n, rounds, online = document["parties"], document["rounds"], document["online"]
    lost = {tuple(entry) for entry in document.get("lost", [])}
    seen = {(i, rounds) for i in range(n) if online[rounds][i]}
    seen |= {(i, t) for i in corrupt for t in range(rounds)}
    for t in range(rounds):
        for i, neighbours in enumerate(document["neighbours"][t]):
            for j in corrupt.intersection(neighbours):
                if online[t + 1][i] and online[t + 1][j] and (t + 1, i, j) not in lost:
                    seen.add((i, t))
    return seen


def _quadratic_forms(shifts: Matrix, noise: Matrix) -> Matrix:
    """h' (N N')^-1 h for each column h of ``shifts``, redundant rows removed: by a factor of N, which is never squared."""
    length = np.linalg.norm(noise, axis=1)
    kept = length > _REDUNDANT * length.max(initial=0.0)
    shifts, noise = shifts[kept] / length[kept, None], noise[kept] / length[kept, None]
    if not len(noise):
        return np.zeros(shifts.shape[1])
    _, triangle, order = qr(noise.T, mode="economic", pivoting=True)
    rank = int((np.abs(np.diag(triangle)) > _REDUNDANT * abs(triangle[0, 0])).sum())
    whitened = solve_triangular(triangle[:rank, :rank], shifts[order[:rank]], trans="T")
    forms: Matrix = (whitened**2).sum(axis=0)
    return forms
