"""What a view reveals about the honest values: the information matrix, and the solvers that compute it or bound it."""

from quietmean.privacy.information.coalition_solver import CoalitionSolver
from quietmean.privacy.information.iterative import bound_mu
from quietmean.privacy.information.matrix import InformationMatrix
from quietmean.privacy.information.solver import NoiseLevels, information_matrix, noise_levels

__all__ = [
    "CoalitionSolver",
    "InformationMatrix",
    "NoiseLevels",
    "bound_mu",
    "information_matrix",
    "noise_levels",
]
