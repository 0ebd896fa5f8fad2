"""The information matrix: the Fisher information of a view about the honest values, exact disclosures included."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Matrix
from quietmean.core.lazy import linalg
from quietmean.core.party import PartyId
from quietmean.transcript import Transcript

# A party takes part in a disclosed combination if its coefficient is above this (rows are orthonormal).
INVOLVED = 1e-7
# What a solver leaves of a variance that is zero in exact arithmetic, relative to the noise around it.
_NOTHING = 1e-12
_ROUNDING = 1e-14
# The solver's error estimate is widened by this factor, and by this much relative, before it becomes the upper bound.
_ERROR_FACTOR, _ERROR_FLOOR = 10.0, 1e-10


@dataclass(frozen=True, eq=False)
class InformationMatrix:
    """Lambda about the values of the honest parties (n_H of them, in the order of ``honest``), per coordinate.

    The whole view is worth exactly one release of the honest values plus independent Gaussian noise along the orthonormal
    columns of ``basis``, shape (n_H, n_H), with variances ``release``, shape (n_H,): infinite where the view reveals nothing,
    0 where it discloses the combination. So Lambda = basis diag(1 / release) basis', and a change v of the honest values shifts
    the view by sqrt(v' Lambda v) standard deviations. ``release_error``: the solver's estimate of its error in ``release``.
    Without ``exact`` it is an upper bound instead: the view reveals no more about any change of the values than this.
    """

    honest: tuple[PartyId, ...]
    basis: Matrix
    release: Matrix
    release_error: float = 0.0
    exact: bool = True

    @classmethod
    def from_parts(cls, honest: tuple[PartyId, ...], finite: Matrix, disclosed: Matrix) -> InformationMatrix:
        """Make an information matrix from Lambda off the disclosed combinations (n_H, n_H) and an orthonormal basis of
        these (r, n_H).
        """
        # Eigenvectors of the disclosed part come last once it outweighs everything else.
        weight = 4.0 * (1.0 + float(np.abs(finite).sum()))
        eigenvalues, basis = np.linalg.eigh(finite + weight * disclosed.T @ disclosed)
        undisclosed = len(honest) - len(disclosed)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        with np.errstate(divide="ignore"):
            release = np.where(np.arange(len(honest)) < undisclosed, 1.0 / eigenvalues, 0.0)
        return cls(honest, basis, release)

    @classmethod
    def of_noisy_values(
        cls, honest: tuple[PartyId, ...], noisy: Matrix, variance: float, error: float = 0.0
    ) -> InformationMatrix:
        """Return the information about values from ``noisy``, that about the values plus independent noise of ``variance``.

        Noise v I turns Lambda into (v I + Lambda^-1)^-1, so both have the same eigenvectors and the noise can be taken away from
        every eigenvalue on its own; one that equals 1 / v belongs to a combination that nothing but the extra noise hides.
        """
        eigenvalues, basis = _eigenvectors(noisy)
        hidden = np.clip(1.0 - variance * eigenvalues, 0.0, 1.0)
        hidden[hidden < _NOTHING] = 0.0
        with np.errstate(divide="ignore"):
            release = variance * hidden / (1.0 - hidden)
        return cls(honest, basis, release, (error + _ROUNDING) * variance)

    @property
    def relative_error(self) -> float:
        """Estimate of the relative rounding error of Lambda."""
        return self.release_error / float(np.min(self.release[self.release > 0], initial=np.inf))

    @property
    def finite(self) -> Matrix:
        """Lambda on all changes that touch no disclosed combination, zero on those: shape (n_H, n_H)."""
        visible = (self.release > 0) & np.isfinite(self.release)
        return (self.basis[:, visible] / self.release[visible]) @ self.basis[:, visible].T

    @property
    def disclosed(self) -> Matrix:
        """Orthonormal basis of the linear combinations that the view discloses without noise: shape (r, n_H)."""
        return self.basis[:, self.release == 0].T

    def with_independent_noise(self, variance: float) -> InformationMatrix:
        """The matrix for values with independent Gaussian noise on each: (variance I + Lambda^-1)^-1, without inverting
        Lambda."""
        return replace(self, release=self.release + variance)

    def scaled(self, factor: float) -> InformationMatrix:
        """The information with noise of ``1 / factor`` times the variance throughout."""
        return replace(self, release=self.release / factor, release_error=self.release_error / factor)

    @property
    def diagonal(self) -> Matrix:
        """Lambda_ii, infinite for parties in a disclosed combination: shape (n_H,)."""
        # Of the matrix itself no more than this is computed: it is asked for very often.
        visible = (self.release > 0) & np.isfinite(self.release)
        diagonal: Matrix = (self.basis[:, visible] ** 2 / self.release[visible]).sum(axis=1)
        diagonal[(np.abs(self.disclosed) > INVOLVED).any(axis=0)] = np.inf
        return diagonal.clip(min=0.0)

    def shift(self, change: Matrix) -> float:
        """sqrt(v' Lambda v) for a change v of the honest values, shape (n_H,)."""
        if self.disclosed.size and np.abs(self.disclosed @ change).max() > INVOLVED * np.linalg.norm(change):
            return float("inf")
        return math.sqrt(max(float(change @ self.finite @ change), 0.0))

    def mu(self, sensitivity: float) -> Matrix:
        """mu_i of Gaussian differential privacy: D sqrt(Lambda_ii), shape (n_H,). Exact for one value replaced."""
        return sensitivity * np.sqrt(self.diagonal)

    def mu_upper(self, sensitivity: float) -> Matrix:
        """Return an upper bound of mu, widened by what the solver may be off, shape (n_H,)."""
        return widened(self.mu(sensitivity), self.relative_error)

    def dense(self) -> Matrix:
        """The matrix itself, infinite entries where a disclosed combination involves both parties."""
        involved = np.abs(self.disclosed) > INVOLVED
        both = involved.T.astype(np.int64) @ involved.astype(np.int64) > 0
        signs = np.sign(self.disclosed.T @ self.disclosed)
        infinite = np.where(signs > 0, np.inf, -np.inf)
        return np.where(both & (signs != 0), infinite, self.finite)

    def mutual_information(self, prior_sd: float) -> Matrix:
        """I(x_i; view) in nats per coordinate, shape (n_H,), for independent values N(0, prior_sd^2)."""
        hidden = linalg.null_space(self.disclosed) if self.disclosed.size else np.eye(len(self.honest))
        precision = np.eye(hidden.shape[1]) / prior_sd**2 + hidden.T @ self.finite @ hidden
        posterior = np.einsum("ij,ji->i", hidden, np.linalg.solve(precision, hidden.T))
        posterior = np.where(posterior > (INVOLVED * prior_sd) ** 2, posterior, 0.0)
        with np.errstate(divide="ignore"):
            return np.maximum(0.5 * np.log(prior_sd**2 / posterior), 0.0)

    def disclosures(self) -> list[str]:
        """A sentence for each exactly disclosed combination, in reduced form."""
        return [_sentence(row, self.honest) for row in _reduced(self.disclosed)]


def widened(mu: Matrix, relative_error: float | Matrix) -> Matrix:
    """mu as a bound: more by what the solver may be off, by its own estimate."""
    return mu * (1.0 + _ERROR_FLOOR + _ERROR_FACTOR * relative_error)


def _eigenvectors(symmetric: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues and eigenvectors; a party about whom the matrix has no information keeps an eigenvalue of exactly zero."""
    seen = symmetric.any(axis=0)
    eigenvalues, basis = np.zeros(len(symmetric)), np.eye(len(symmetric))
    eigenvalues[seen], basis[np.ix_(seen, seen)] = np.linalg.eigh(symmetric[np.ix_(seen, seen)])
    return eigenvalues, basis


def _reduced(basis: Matrix) -> Matrix:
    """Reduced row echelon form: the combinations with the fewest parties that are easy to read off."""
    rows = basis.copy()
    pivot_row = 0
    for column in range(rows.shape[1]):
        if pivot_row == len(rows):
            break
        best = pivot_row + int(np.argmax(np.abs(rows[pivot_row:, column])))
        if abs(rows[best, column]) <= INVOLVED:
            continue
        rows[[pivot_row, best]] = rows[[best, pivot_row]]
        rows[pivot_row] /= rows[pivot_row, column]
        others = np.arange(len(rows)) != pivot_row
        rows[others] -= np.outer(rows[others, column], rows[pivot_row])
        pivot_row += 1
    rows[np.abs(rows) <= INVOLVED] = 0.0
    return rows


def _sentence(row: Matrix, honest: tuple[PartyId, ...]) -> str:
    members = [(honest[index], row[index]) for index in np.nonzero(row)[0]]
    if len(members) == 1:
        return f"the value of party {members[0][0]} is disclosed"
    if np.allclose([weight for _, weight in members], 1.0, atol=1e-6):
        return f"the sum of parties {', '.join(str(party) for party, _ in members)} is disclosed"
    combination = " ".join(_signed(weight, party) for party, weight in members).removeprefix("+ ")
    return f"the combination {combination} is disclosed"


def _signed(weight: float, party: PartyId) -> str:
    size = "" if abs(abs(weight) - 1.0) <= 1e-6 else f"{abs(weight):.4g} "
    return f"{'-' if weight < 0 else '+'} {size}x_{party}"


def extra_variance(bare: Transcript, private_variance: float) -> float:
    """A variance of extra noise at the scale of the noise that matters: rounding is relative to it."""
    positive = bare.noise_scale[bare.noise_scale > 0]
    typical = float(np.median(positive)) ** 2 if positive.size else 0.0
    return max(typical, private_variance) or 1.0


def without_private_noise(transcript: Transcript) -> tuple[Transcript, float]:
    """Take out the noise that a party adds to its value once, before anything else; also returns its variance.

    It is a noise term that occurs in one row alone, the only row where the party's value occurs, and that the party alone
    knows. Adding it back to an information matrix is exact, and without it the system is free of widely different scales.
    """
    values, noise = transcript.values.tocsc(), transcript.noise.tocsc()
    once = (np.diff(values.indptr) == 1).all() and (values.data == 1.0).all()
    rows = values.indices if once else np.zeros(0, dtype=np.int32)
    single = np.nonzero((np.diff(noise.indptr) == 1) & (np.diff(transcript.noise_known.indptr) == 1))[0]
    owner = transcript.noise_known.indices[transcript.noise_known.indptr[single]]
    private = single[np.isin(noise.indices[noise.indptr[single]], rows)] if once else single[:0]
    owner = owner[np.isin(single, private)]
    matches = private.size == transcript.parties and (rows[owner] == noise.indices[noise.indptr[private]]).all()
    scales = transcript.noise_scale[private] * np.abs(noise.data[noise.indptr[private]])
    if not matches or np.unique(owner).size != transcript.parties or np.ptp(scales) > 0:
        return transcript, 0.0
    bare = transcript.noise_scale.copy()
    bare[private] = 0.0
    return replace(transcript, noise_scale=bare), float(scales[0]) ** 2
