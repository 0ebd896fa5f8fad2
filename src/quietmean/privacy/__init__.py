"""Privacy analysis of executions of any protocol: one information matrix, and all privacy figures that follow from it."""

from quietmean.core.domain import GAUSSIAN_GUARANTEE
from quietmean.privacy.adversary import Adversary, Eavesdropper
from quietmean.privacy.analysis import PrivacyAnalysis
from quietmean.privacy.certificate import Certificate, CertificateTerms, CoalitionCertificate
from quietmean.privacy.charge import Charge, compose, require_members
from quietmean.privacy.coalitions import Effort
from quietmean.privacy.composition import (
    classical_renyi_epsilon,
    compose_budgets,
    compose_mu,
    group_mu,
    mu_of_budget,
    mu_of_errors,
    remaining_mu,
    renyi_epsilon,
    set_mu,
    type_two_error,
)
from quietmean.privacy.information import InformationMatrix, NoiseLevels, bound_mu, information_matrix, noise_levels
from quietmean.privacy.loss import (
    EXPOSED_REAL_ARITHMETIC,
    GAUSSIAN,
    REAL_ARITHMETIC,
    GridLossConversion,
    LaplaceLossConversion,
    LocalNoiseLossConversion,
    LossConversion,
    WithoutNoise,
)

__all__ = [
    "EXPOSED_REAL_ARITHMETIC",
    "GAUSSIAN",
    "GAUSSIAN_GUARANTEE",
    "REAL_ARITHMETIC",
    "Adversary",
    "Certificate",
    "CertificateTerms",
    "Charge",
    "CoalitionCertificate",
    "Eavesdropper",
    "Effort",
    "GridLossConversion",
    "InformationMatrix",
    "LaplaceLossConversion",
    "LocalNoiseLossConversion",
    "LossConversion",
    "NoiseLevels",
    "PrivacyAnalysis",
    "WithoutNoise",
    "bound_mu",
    "classical_renyi_epsilon",
    "compose",
    "compose_budgets",
    "compose_mu",
    "group_mu",
    "information_matrix",
    "mu_of_budget",
    "mu_of_errors",
    "noise_levels",
    "remaining_mu",
    "renyi_epsilon",
    "require_members",
    "set_mu",
    "type_two_error",
]
