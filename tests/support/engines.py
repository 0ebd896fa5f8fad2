"""A Spark of this machine alone, where it is installed: make test-spark installs it."""

from __future__ import annotations

import atexit
import functools
from typing import Any

import pytest


@functools.cache
def spark_session() -> Any:
    """It ends with this process. Skips the test where none is installed."""
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed here: make test-spark")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    session = sql.SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session
