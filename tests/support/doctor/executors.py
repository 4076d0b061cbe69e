"""Cases of the rules about executors."""

from __future__ import annotations

from tests.support.doctor.cases import DYNAMIC, ENDS, LOCAL_CLUSTER, Cases, fires, quiet, spark
from tests.support.doctor.sound_application import topology

CASES: Cases = {
    "executor-cores": (
        fires(
            "spark.conf.spark.executor.cores",
            LOCAL_CLUSTER,
            spark("spark.executor.cores", 4),
            says="4 cores",
        ),
        fires("spark.conf.spark.task.cpus", spark("spark.task.cpus", 3), says="3 cores a task"),
        quiet(spark("spark.task.cpus", 2)),
    ),
    "single-slot": (
        fires("spark.conf.spark.executor.cores", spark("spark.executor.cores", 1)),
        fires("spark.conf.spark.executor.cores", spark("spark.task.cpus", 2)),
        quiet("spark.master=local"),
        quiet(spark("spark.executor.cores", 1), "placement.num.standby.replicas=0"),
    ),
    "idle-slots": (
        fires(
            "topology.sources.orders.partitions", says="5 tasks at a time, and 6 slots", topology=topology(5)
        ),
        quiet(topology=topology(6)),
        quiet("spark.master=local[*]", topology=topology(1)),
    ),
    "worker-reuse": (
        fires("spark.conf.spark.python.worker.reuse", spark("spark.python.worker.reuse", "false")),
        quiet(spark("spark.python.worker.reuse", "true")),
    ),
    "python-path": (
        fires("spark.conf.spark.executorEnv.PYTHONPATH", spark("spark.executorEnv.PYTHONPATH", "/opt/shop")),
        quiet(properties={"spark.executorEnv.PYTHONPATH": "/opt/shop"}),
    ),
    "task-failures": (
        fires("spark.conf.spark.task.maxFailures", spark("spark.task.maxFailures", 1)),
        quiet(spark("spark.task.maxFailures", 2)),
    ),
    "idle-timeout": (
        fires(
            "spark.conf.spark.dynamicAllocation.executorIdleTimeout",
            spark("spark.dynamicAllocation.enabled", "true"),
            says="1 min",
        ),
        fires(
            "spark.conf.spark.dynamicAllocation.executorIdleTimeout",
            *DYNAMIC,
            "spark.trigger.interval=10 min",
            says="10 min",
        ),
        quiet(*DYNAMIC),
        quiet(*DYNAMIC[:1], "spark.master=local[2]"),
    ),
    "fewest-executors": (
        fires(
            "spark.conf.spark.dynamicAllocation.minExecutors",
            spark("spark.dynamicAllocation.enabled", "true"),
            says="0 executors at least, and 2 copies",
        ),
        quiet(*DYNAMIC),
    ),
    "shuffle-of-removed-executors": (
        fires(
            "spark.conf.spark.dynamicAllocation.shuffleTracking.enabled",
            *DYNAMIC[:3],
            spark("spark.dynamicAllocation.shuffleTracking.enabled", "false"),
        ),
        quiet(*DYNAMIC, spark("spark.dynamicAllocation.shuffleTracking.enabled", "false")),
        quiet(
            *DYNAMIC[:3],
            spark("spark.dynamicAllocation.shuffleTracking.enabled", "false"),
            spark("spark.shuffle.service.enabled", "true"),
        ),
    ),
    "decommissioning-off": (
        fires("spark.conf.spark.decommission.enabled", *DYNAMIC[:3]),
        fires("spark.conf.spark.decommission.enabled", "spark.master=k8s://https://api"),
        quiet(*DYNAMIC),
    ),
    "drill": (
        fires("chaos", "chaos=[{batch: 3, kill: executor-with-most-active}]", says="a stream that goes on"),
        fires("chaos", "chaos=[{batch: 3, kill: '1'}]", "spark.master=local[4]", says="local[4]"),
        quiet("chaos=[{batch: 3, kill: '1'}]", LOCAL_CLUSTER, without=ENDS),
    ),
}
