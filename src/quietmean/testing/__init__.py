"""The public test kit, for authors of protocols and statistics, and for independent checks of ours.

* :func:`check_protocol` and its parts: the declared and the traced transcript, the batch kernel and the party machines agree,
  mass is conserved, and a restart changes nothing;
* :func:`check_statistic`: a statistic's features are no further apart than it says, and its errors as large as stated;
* :func:`check_sensitivity`: a search for two records that are further apart than a whole study's sensitivity says;
* :func:`theorem41`: the privacy loss of IncA straight from the paper, sharing no code with the engine;
* :func:`example_execution`: an execution in one line;
* ``assert_mean`` and its like: statistical assertions with a stated error rate;
* ``quietmean.testing.strategies``: random executions, for which ``hypothesis`` must be installed.
"""

from quietmean.testing.conformance import (
    assert_same_transcript,
    check_batch,
    check_file,
    check_mass,
    check_protocol,
    check_restarts,
    check_transcript,
    check_weights,
    mixes,
)
from quietmean.testing.examples import example_execution
from quietmean.testing.statistic_conformance import check_feature, check_sensitivity, check_statistic, farthest_records
from quietmean.testing.statistics import (
    assert_mean,
    assert_rate,
    assert_standard_normal,
    assert_uncorrelated,
    assert_uniform_counts,
    assert_variance,
)
from quietmean.testing.theorem41 import theorem41

__all__ = [
    "assert_mean",
    "assert_rate",
    "assert_same_transcript",
    "assert_standard_normal",
    "assert_uncorrelated",
    "assert_uniform_counts",
    "assert_variance",
    "check_batch",
    "check_feature",
    "check_file",
    "check_mass",
    "check_protocol",
    "check_restarts",
    "check_sensitivity",
    "check_statistic",
    "check_transcript",
    "check_weights",
    "example_execution",
    "farthest_records",
    "mixes",
    "theorem41",
]
