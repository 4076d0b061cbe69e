"""Cases of the rules about Spark's scheduler."""

from __future__ import annotations

from tests.support.doctor.cases import ADVICE, Cases, fires, quiet, spark

CASES: Cases = {
    "locality-wait-short": (
        fires("runtime.locality.wait.ms", "runtime.locality.wait.ms=500", says="0.5 s"),
        fires("spark.conf.spark.locality.wait", spark("spark.locality.wait", "500ms"), says="0.5 s"),
        fires("spark.conf.spark.locality.wait.process", spark("spark.locality.wait.process", 0), says="0 s"),
        fires(
            "spark-defaults.conf: spark.locality.wait", says="1 s", properties={"spark.locality.wait": "1s"}
        ),
        quiet("runtime.locality.wait.ms=500", spark("spark.locality.wait", "30s")),
        quiet("runtime.locality.wait.ms=3000"),
        quiet("runtime.locality.wait.ms=500", steered=True),
    ),
    "locality-wait-ignored": (
        fires(
            "runtime.locality.wait.ms",
            spark("spark.locality.wait", "5s"),
            says="30000 ms, and spark.conf.spark.locality.wait",
        ),
        fires(
            "runtime.locality.wait.ms",
            spark("spark.locality.wait", 0),
            "runtime.locality.wait.ms=10",
            says="10 ms",
        ),
        quiet(spark("spark.locality.wait", "30s")),
        quiet(spark("spark.locality.wait", "5s"), written=frozenset()),
    ),
    "speculation": (
        fires("spark.conf.spark.speculation", spark("spark.speculation", "true")),
        fires("spark-defaults.conf: spark.speculation", properties={"spark.speculation": "true"}),
        quiet(spark("spark.speculation", "false"), properties={"spark.speculation": "true"}),
    ),
    "adaptive-execution": (
        fires("spark.conf.spark.sql.adaptive.enabled", spark("spark.sql.adaptive.enabled", "true")),
        quiet(spark("spark.sql.adaptive.enabled", "false")),
    ),
    "scheduler-not-fair": (
        fires("spark.conf.spark.scheduler.mode", spark("spark.scheduler.mode", "FIFO"), says="FIFO"),
        quiet(spark("spark.scheduler.mode", "fair")),
        quiet(properties={"spark.scheduler.mode": "FIFO"}),
    ),
    "reduce-locality": (
        fires(
            "spark.conf.spark.shuffle.reduceLocality.enabled",
            spark("spark.shuffle.reduceLocality.enabled", "true"),
        ),
        quiet(properties={"spark.shuffle.reduceLocality.enabled": "true"}),
    ),
    "unload-on-commit": (
        fires(
            "spark.conf.spark.sql.streaming.stateStore.unloadOnCommit",
            spark("spark.sql.streaming.stateStore.unloadOnCommit", "true"),
            steered=True,
        ),
        fires(
            "spark.conf.spark.sql.streaming.stateStore.unloadOnCommit",
            spark("spark.sql.streaming.stateStore.unloadOnCommit", "true"),
            severity=ADVICE,
        ),
    ),
    "state-store-ignored": (
        fires(
            "spark.conf.spark.sql.streaming.checkpointLocation",
            spark("spark.sql.streaming.checkpointLocation", "/x"),
        ),
        fires(
            "spark-defaults.conf: spark.sql.streaming.stateStore.providerClass",
            says="RocksDB",
            properties={"spark.sql.streaming.stateStore.providerClass": "RocksDB"},
        ),
        quiet(spark("spark.sql.streaming.stateStore.unloadOnCommit", "true")),
    ),
}
