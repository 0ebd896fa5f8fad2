"""Certificates of bare transcripts, for tests of the solvers."""

from __future__ import annotations

from quietmean.privacy import Adversary, Certificate, PrivacyAnalysis
from quietmean.transcript import Transcript


def certificate_of(
    transcript: Transcript, adversary: Adversary, sensitivity: float, method: str = "auto", delta: float = 1e-6
) -> Certificate:
    """What the adversary learns if the noise is Gaussian, as the transcript says; ``method`` names the solver."""
    analysis = PrivacyAnalysis.of_gaussian(transcript, sensitivity, delta, method=method)
    return analysis.against(adversary.corrupt, adversary.observed)
