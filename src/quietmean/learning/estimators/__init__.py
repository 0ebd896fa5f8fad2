"""Estimators with scikit-learn's interface, each fitted under one budget by several parties; the extra ``sklearn``.

One shot is one study, rounds are one session, both of all parties in this process with real noise: to develop and to compare.
"""

from quietmean.learning.estimators.base import FitCertificate
from quietmean.learning.estimators.kmeans import KMeans
from quietmean.learning.estimators.logistic import LogisticRegression
from quietmean.learning.estimators.one_study import PCA, LinearRegression, StandardScaler

__all__ = ["PCA", "FitCertificate", "KMeans", "LinearRegression", "LogisticRegression", "StandardScaler"]
