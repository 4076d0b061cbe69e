"""Checks at the start that this Spark has every private call that the bridge makes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from taskplace.errors import InputError, UnsupportedSpark
from taskplace.spark.session_conf import TESTED

WORKS = f"taskplace works with PySpark classic {TESTED}.x on Java 17 or newer"

#: The methods that the bridge calls beyond Spark's public API, by Java class.
NEEDED: Mapping[str, Sequence[str]] = {
    "org.apache.spark.SparkContext": (
        "makeRDD", "statusStore", "statusTracker", "getExecutorIds", "taskScheduler", "cancelJobsWithTag",
    ),
    "org.apache.spark.SparkStatusTracker": ("getJobIdsForTag", "getJobInfo", "getStageInfo"),
    "org.apache.spark.api.python.PythonUtils": ("getBroadcastThreshold",),
    "org.apache.spark.scheduler.TaskSchedulerImpl": (
        "executorsPendingDecommission", "getExecutorDecommissionState",
    ),
    "org.apache.spark.sql.classic.Dataset": ("toArrowBatchRdd", "queryExecution"),
    "org.apache.spark.sql.classic.SparkSession": ("internalCreateDataFrame", "sharedState"),
    "org.apache.spark.sql.execution.CoalescedPartitionSpec": ("startReducerIndex", "endReducerIndex"),
    "org.apache.spark.sql.execution.exchange.ShuffleExchangeLike": ("submitShuffleJob", "getShuffleRDD"),
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": (
        "awaitInitialization", "resolvedCheckpointRoot",
    ),
    "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper": ("streamingQuery",),
    "org.apache.spark.sql.internal.SharedState": ("activeStreamingQueries",),
    "org.apache.spark.status.AppStatusStore": ("executorList", "lastStageAttempt", "taskList"),
}  # fmt: skip


def probe(spark: SparkSession) -> None:
    """Check a session. Only names are compared, so nothing is started.

    Errors: `UnsupportedSpark`, which says what is missing and what works; `InputError` for something else than a
    session.
    """
    if not hasattr(spark, "_jsparkSession"):
        if not type(spark).__module__.startswith("pyspark.sql.connect"):
            raise InputError("spark", found=spark, expected="a SparkSession")
        raise UnsupportedSpark(
            f"found a Spark Connect session, which cannot reach executors; {WORKS}, not with Spark Connect"
        )
    release = f"PySpark {pyspark.__version__}"
    if not pyspark.__version__.startswith("4."):
        raise UnsupportedSpark(f"found {release}; {WORKS}")
    if not hasattr(DataFrame, "repartitionById"):
        raise UnsupportedSpark(f"{release} has no DataFrame.repartitionById; {WORKS}")
    jvm: Any = spark.sparkContext._jvm
    for name, methods in NEEDED.items():
        there = _methods(jvm, name)
        if missing := [method for method in methods if method not in there]:
            raise UnsupportedSpark(f"{release} has no {name.rpartition('.')[2]}.{missing[0]}; {WORKS}")


def _methods(jvm: Any, name: str) -> frozenset[str]:
    """Return the names of the public methods of a Java class; none if there is no such class. A few calls."""
    try:
        methods = jvm.java.lang.Class.forName(name).getMethods()
    except Py4JJavaError:
        return frozenset()
    return frozenset(re.findall(r"\.(\w+)\(", jvm.org.apache.commons.lang3.ArrayUtils.toString(methods)))
