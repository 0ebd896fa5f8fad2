"""What an execution leaks, exactly: one information matrix, and everything that follows from it. Names no protocol."""

from quietmean.privacy.adversary import Adversary
from quietmean.privacy.certificate import Certificate, certify
from quietmean.privacy.coalitions import CoalitionCertificate, certify_coalitions, certify_everyone_else
from quietmean.privacy.gaussian import delta_of_mu, epsilon_of_mu, mu_of_budget
from quietmean.privacy.information import InformationMatrix
from quietmean.privacy.solver import information_matrix

__all__ = [
    "Adversary",
    "Certificate",
    "CoalitionCertificate",
    "InformationMatrix",
    "certify",
    "certify_coalitions",
    "certify_everyone_else",
    "delta_of_mu",
    "epsilon_of_mu",
    "information_matrix",
    "mu_of_budget",
]
