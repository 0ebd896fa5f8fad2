"""Estimators with scikit-learn's interface, each fitted under one budget by several parties; the extra ``sklearn``.

One shot is one study, rounds are one session, both of all parties in this process with real noise: to develop and to compare.
"""

from quietmean.learning.estimators.certificate import FitCertificate
from quietmean.learning.estimators.kmeans import KMeans
from quietmean.learning.estimators.linear import LinearRegression
from quietmean.learning.estimators.logistic import LogisticRegression
from quietmean.learning.estimators.pca import PCA
from quietmean.learning.estimators.scaler import StandardScaler

__all__ = ["PCA", "FitCertificate", "KMeans", "LinearRegression", "LogisticRegression", "StandardScaler"]
