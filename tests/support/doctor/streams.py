"""Cases of the rules about sources, sinks and secrets."""

from __future__ import annotations

from pathlib import Path

from taskplace.doctor import MissingInput
from tests.support.doctor.cases import Cases, fires, quiet, spark
from tests.support.doctor.sound_application import topology
from topology import BuiltTopology, Topology


def joined() -> BuiltTopology:
    """Return a topology with a join."""
    topo = Topology("shop")
    orders, customers = (topo.source(name, key="customer", partitions=2) for name in ("orders", "customers"))
    orders.join_table(customers, name="with-customer")
    return topo.build()


CASES: Cases = {
    "first-batch-unlimited": (
        fires("input.files.options.maxFilesPerTrigger", "input.files={format: parquet, path: /in}"),
        fires(
            "input.topic.options.maxOffsetsPerTrigger", "input.topic={format: kafka, options: {subscribe: a}}"
        ),
        fires("input.clicks.kafka.most_records", "input.clicks.kafka.most_records=null"),
        quiet("input.files={format: parquet, path: /in, options: {maxBytesPerTrigger: 1g}}"),
        quiet("input.ticks={format: rate}", "input.dir=/in"),
        quiet("input.clicks.kafka={topic: clicks, servers: 'broker:9092'}"),
    ),
    "input-missing": (
        fires(
            "input.orders.path",
            says="/data/order",
            missing_inputs=(MissingInput("input.orders.path", Path("/data/order"), "/data/orders"),),
            ends=False,
        ),
        quiet(missing_inputs=()),
    ),
    "keys-unchecked": (
        fires(
            "topology.sources.orders.options.key_bytes",
            topology=topology(partition_column="partition"),
            ends=False,
        ),
        quiet(topology=topology(partition_column="partition", key_bytes="key")),
        quiet(topology=topology(partition_column="partition", check_keys=False)),
        quiet(topology=topology(reads="a reader")),
    ),
    "topics-unaligned": (
        fires(
            "runtime.max.task.idle.ms",
            "runtime.max.task.idle.ms=-1",
            says="-1, and several inputs of with-customer",
            topology=joined(),
        ),
        quiet("runtime.max.task.idle.ms=500", topology=joined()),
        quiet("runtime.max.task.idle.ms=-1"),
    ),
    "data-loss-accepted": (
        fires("input.orders.options.failOnDataLoss", "input.orders.options.failOnDataLoss=false"),
        quiet("input.orders.options.failOnDataLoss=true"),
    ),
    "order-lost": (
        fires("input.orders.options.minPartitions", "input.orders.options.minPartitions=48", says="48"),
        fires("input.orders.options.maxRecordsPerPartition", "input.orders.options.maxRecordsPerPartition=9"),
    ),
    "uncommitted-records": (
        fires(
            "input.orders.options.kafka.isolation.level",
            "input.orders.options.kafka.isolation.level=read_uncommitted",
        ),
    ),
    "group-options": (
        fires(
            "input.clicks.kafka.options.session.timeout.ms",
            "input.clicks.kafka.options={session.timeout.ms: 6000}",
        ),
        fires(
            "input.orders.options.kafka.heartbeat.interval.ms",
            "input.orders.options.kafka.session.timeout.ms=6000",
            says="a heartbeat every 3000 ms in a session of 6000 ms",
        ),
        quiet("input.orders.options.kafka.session.timeout.ms=9000"),
    ),
    "sink-of-your-own": (
        fires("output.own.foreach", "output.own={foreach: 'shop:write'}", says="shop:write"),
        quiet("output.files={path: /out}", "output.dir=/out"),
    ),
    "changed-topics": (
        fires("output.totals.kafka.changed_topics", "output.totals.kafka.changed_topics=go-on"),
        fires("input.clicks.kafka.changed_topics", "input.clicks.kafka.changed_topics=go-on"),
        quiet("output.totals.kafka.changed_topics=stop"),
    ),
    "sink-at-least-once": (
        fires("output.totals.kafka.delivery", "output.totals.kafka.delivery=at-least-once"),
        quiet("output.totals.kafka.delivery=exactly-once"),
    ),
    "transaction-timeout": (
        fires(
            "output.totals.kafka.options.transaction.timeout.ms",
            "output.totals.kafka.options.transaction.timeout.ms=3600000",
            says="3600000 ms",
        ),
        fires(
            "output.totals.kafka.options.transaction.timeout.ms",
            "output.totals.kafka.options.transaction.timeout.ms=500",
        ),
        quiet("output.totals.kafka.options.transaction.timeout.ms=900000"),
    ),
    "marker-replication": (
        fires("output.totals.kafka.replication", "output.totals.kafka.replication=1"),
        fires(
            "output.totals.kafka.replication",
            "output.totals.kafka.replication=1",
            "output.totals.kafka.servers=null",
            "output.totals.kafka.servers_env=KAFKA_SERVERS",
        ),
        quiet(
            "output.totals.kafka.replication=1", "output.totals.kafka.servers='localhost:9092,127.0.0.1:9093'"
        ),
        quiet("output.totals.kafka.replication=3"),
    ),
    "secret-in-plain-text": (
        fires(
            "spark.conf.spark.hadoop.fs.s3a.secret.key",
            spark("spark.hadoop.fs.s3a.secret.key", "hunter2"),
            says="(hidden)",
        ),
        fires(
            "input.orders.options.kafka.ssl.key.password",
            "input.orders.options.kafka.ssl.key.password=hunter2",
            says="(hidden)",
        ),
        fires(
            "spark.conf.spark.executorEnv.URL",
            spark("spark.executorEnv.URL", "jdbc://me:hunter2@host/db"),
            says="(hidden)",
        ),
        quiet(
            spark("spark.authenticate.secret.file", "/etc/secret"),
            "input.orders.options.kafka.sasl.mechanism=PLAIN",
        ),
        quiet(
            "topology.sources.orders.key=password", spark("spark.security.credentials.hive.enabled", "false")
        ),
        quiet(spark("spark.hadoop.fs.s3a.secret.key", "'${env:SECRET}'")),
    ),
    "metrics-open": (
        fires("report.metrics.host", "report.metrics.host=0.0.0.0", says="0.0.0.0"),
        quiet("report.metrics.host=localhost"),
        quiet("report.metrics.host=0.0.0.0", "report.metrics.port=null"),
    ),
    "report-keys-ignored": (
        fires("report.log.tasks", "report.log=none"),
        fires("report.metrics.host", "report.metrics.port=null"),
        quiet("report.metrics.port=null", written=frozenset()),
    ),
}
