"""Cases of the rules about memory and directories."""

from __future__ import annotations

from taskplace.doctor import HostFacts
from tests.support.doctor.cases import ADVICE, LOCAL_CLUSTER, Cases, fires, quiet, spark, with_checkpoint

_YARN = ("spark.master=yarn", spark("spark.executor.instances", 3))

CASES: Cases = {
    "executor-memory": (
        fires("spark.conf.spark.executor.memory", LOCAL_CLUSTER, says="4096 MiB"),
        quiet(LOCAL_CLUSTER, spark("spark.executor.memory", "900m")),
    ),
    "worker-memory": (
        fires(
            "spark.conf.spark.executor.memoryOverhead",
            *_YARN,
            spark("spark.executor.cores", 4),
            says="410 MiB beside the heap, and 4 Python workers",
        ),
        fires(
            "spark.conf.spark.executor.memoryOverhead",
            *_YARN,
            "runtime.bytes.per.task=1073741824",
            says="384 to 2304 MiB",
            severity=ADVICE,
        ),
        quiet(*_YARN, spark("spark.executor.memoryOverhead", "1g")),
        quiet(*_YARN, spark("spark.executor.memoryOverheadFactor", "0.4")),
        quiet(*_YARN, spark("spark.executor.pyspark.memory", "1g")),
        quiet(spark("spark.executor.cores", 4)),
    ),
    "state-memory": (
        fires(
            "spark.conf.spark.executor.memoryOverhead",
            *_YARN,
            says="at least 683 MiB of state on each executor",
        ),
        fires(
            "state.dir",
            LOCAL_CLUSTER,
            spark("spark.executor.memory", "900m"),
            says="of state",
            host=HostFacts(4 << 30),
            **with_checkpoint(state_bytes=1 << 30),
        ),
        quiet(*_YARN, spark("spark.executor.memoryOverhead", "2g")),
        quiet(LOCAL_CLUSTER),
        quiet(LOCAL_CLUSTER, host=HostFacts()),
    ),
    "host-memory": (
        fires("spark.conf.spark.executor.memory", LOCAL_CLUSTER, says="13,312 MiB", host=HostFacts(8 << 30)),
        quiet(LOCAL_CLUSTER),
        quiet(LOCAL_CLUSTER, host=HostFacts()),
    ),
    "state-in-temporary-directory": (
        fires("state.dir", "state.dir=/tmp/state", says="/tmp/state"),
        fires("state.dir", "state.dir=/fast/state", host=HostFacts(None, {"/": "ext4", "/fast": "tmpfs"})),
        quiet("state.dir=/var/tmp/state"),
        quiet("state.dir=/tmpdir/state"),
    ),
    "checkpoint-in-temporary-directory": (
        fires("checkpoint.dir", "checkpoint.dir=/tmp/checkpoint"),
        fires("checkpoint.dir", "checkpoint.dir=file:///var/tmp/checkpoint", says="/var/tmp/checkpoint"),
    ),
    "state-in-spark-local-dir": (
        fires("state.dir", spark("spark.local.dir", "/a,/disk/shop"), says="inside spark.local.dir"),
        quiet(spark("spark.local.dir", "/a,/disk/shop/state/x")),
    ),
    "state-on-network": (
        fires("state.dir", "state.dir=/shared/state", says="nfs4"),
        quiet("state.dir=/shared/state", host=HostFacts()),
    ),
    "checkpoint-on-one-host": (
        fires(
            "checkpoint.dir",
            "checkpoint.dir=/disk/checkpoint",
            says="xfs, and the master spark://driver:7077",
        ),
        quiet("checkpoint.dir=/disk/checkpoint", LOCAL_CLUSTER),
        quiet("checkpoint.dir=/disk/checkpoint", "spark.master=spark://127.0.0.1:7077"),
        quiet("checkpoint.dir=/disk/checkpoint", host=HostFacts()),
    ),
    "directories-by-default": (
        fires("state.dir", without=("state.dir",)),
        quiet("spark.master=local[*]", without=("state.dir",)),
    ),
}
