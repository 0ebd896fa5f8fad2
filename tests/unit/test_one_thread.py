"""Where linear algebra is limited to one thread, every library of it is, also one that is loaded only then."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from quietmean.core.workers import one_thread
with one_thread():
    import numpy.linalg, scipy.linalg
    from threadpoolctl import threadpool_info
    print(json.dumps([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]))
"""


def test_every_library_is_limited() -> None:
    environment = {"OPENBLAS_NUM_THREADS": "4"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    threads = json.loads(done.stdout)
    # From an index numpy and scipy bring one each; from a distribution they may share one.
    assert threads
    assert set(threads) == {1}
