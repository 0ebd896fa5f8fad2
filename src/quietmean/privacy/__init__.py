"""What an execution leaks, exactly: one information matrix, and everything that follows from it. Names no protocol."""

from quietmean.privacy.accounting import GAUSSIAN, Accounting
from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, certify
from quietmean.privacy.coalitions import CoalitionCertificate, certify_coalitions, certify_everyone_else, search_worst_coalition
from quietmean.privacy.composition import (
    classical_renyi_epsilon,
    compose_budgets,
    compose_mu,
    group_mu,
    mu_of_errors,
    remaining_mu,
    renyi_epsilon,
    set_mu,
    type_two_error,
)
from quietmean.privacy.gaussian import delta_of_mu, epsilon_of_mu, mu_of_budget
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.iterative import bound_mu
from quietmean.privacy.levels import NoiseLevels, noise_levels
from quietmean.privacy.solver import information_matrix

__all__ = [
    "GAUSSIAN",
    "Accounting",
    "Adversary",
    "Certificate",
    "CoalitionCertificate",
    "InformationMatrix",
    "NoiseLevels",
    "bound_mu",
    "certify",
    "certify_coalitions",
    "certify_everyone_else",
    "classical_renyi_epsilon",
    "compose_budgets",
    "compose_mu",
    "delta_of_mu",
    "epsilon_of_mu",
    "group_mu",
    "information_matrix",
    "mu_of_budget",
    "mu_of_errors",
    "noise_levels",
    "remaining_mu",
    "renyi_epsilon",
    "search_worst_coalition",
    "set_mu",
    "type_two_error",
]
