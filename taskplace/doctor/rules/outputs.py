"""Sinks, and what leaves the process: secrets, metrics, logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rule, set_key
from taskplace.doctor.rules.inputs import read_topics
from taskplace.redaction import HIDDEN, scrubbed

#: The brokers' default of `transaction.max.timeout.ms`, and a time that a batch may well take.
MOST_TRANSACTION_MS, LEAST_TRANSACTION_MS = 900_000, 10_000
#: Names of secrets. `taskplace.redaction` hides more: there, too much is no harm.
_SECRET = re.compile(
    r"(password|passwd|passphrase|secret|jaas\.config|token|ssl\.key\.pem|[._]pass|(api|access|private|account|secret)[._-]?key)"
    r"(?=$|[._])",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(location|file|path|provider|class|url|uri|endpoint|type|protocol|mechanism|enabled|env)$",
    re.IGNORECASE,
)
_LOOPBACK = re.compile(r"127\.\d+\.\d+\.\d+|localhost|::1")


def kafka_sinks(facts: Facts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and fields of each entry of `output` that writes to a Kafka topic."""
    for name, entry in facts.settings.output.items():
        if isinstance(entry, Mapping) and isinstance(fields := entry.get("kafka"), Mapping):
            yield f"output.{name}.kafka", fields


@rule("sink-of-your-own", Severity.ADVICE, "sinks that must be idempotent by batch id")
def sink_of_your_own(facts: Facts) -> Iterator[Found]:
    """Find functions that take batches."""
    for name, entry in facts.settings.output.items():
        if isinstance(entry, Mapping) and "foreach" in entry:
            yield Found(
                f"output.{name}.foreach",
                f"{entry['foreach']}",
                "A batch is passed again after a crash: the same rows, under the same batch id. The function has to "
                "write them once.",
                "# make the function idempotent by batch id, or write to `path` or `kafka`",
            )


@rule("sink-at-least-once", Severity.ADVICE, "Kafka sinks that may write a batch twice")
def sink_at_least_once(facts: Facts) -> Iterator[Found]:
    """Find `delivery: at-least-once`."""
    for path, fields in kafka_sinks(facts):
        if fields.get("delivery") == "at-least-once":
            yield Found(
                f"{path}.delivery",
                "at-least-once",
                "After a crash, readers may see the records of a batch twice. A transaction costs about 20 ms a batch.",
                set_key(f"{path}.delivery", "exactly-once"),
            )


@rule(
    "transaction-timeout",
    Severity.WARNING,
    "transactions of Kafka sinks that brokers refuse, or that end too early",
)
def transaction_timeout(facts: Facts) -> Iterator[Found]:
    """Compare `transaction.timeout.ms` with what brokers allow by default, and with what a batch may take."""
    for path, fields in kafka_sinks(facts):
        options = fields.get("options")
        given = options.get("transaction.timeout.ms") if isinstance(options, Mapping) else None
        value = int(given) if str(given).isdecimal() else None  # type: ignore[arg-type]
        if value is None or LEAST_TRANSACTION_MS <= value <= MOST_TRANSACTION_MS:
            continue
        short = value < LEAST_TRANSACTION_MS
        yield Found(
            f"{path}.options.transaction.timeout.ms",
            f"{value} ms",
            "A batch that takes longer is aborted, and sent once more. Then the stream ends with an error."
            if short
            else "Brokers refuse more than their `transaction.max.timeout.ms`, by default 15 minutes. After a kill, "
            "readers of committed records wait for as long.",
            set_key(f"{path}.options.transaction.timeout.ms", 60_000 if short else MOST_TRANSACTION_MS),
        )


@rule(
    "changed-topics",
    Severity.WARNING,
    "Kafka sources and sinks that go on with a topic that has lost records",
)
def changed_topics(facts: Facts) -> Iterator[Found]:
    """Find `changed_topics: go-on`, which is meant for one start."""
    found = {
        "A topic that was deleted and made again, new partitions and lost markers are warnings only: rows may be "
        "missing, out of order, or there twice.": kafka_sinks(facts),
        "Records that were removed before they were read, and a topic that was made again, are warnings only: the "
        "stream skips what is gone.": read_topics(facts),
    }
    for why, given in found.items():
        for path, fields in given:
            if fields.get("changed_topics") == "go-on":
                at = f"{path}.changed_topics"
                yield Found(
                    at, "go-on", f"{why} Set it for the one start that needs it.", set_key(at, "stop")
                )


@rule("marker-replication", Severity.WARNING, "markers of Kafka sinks on a single broker")
def marker_replication(facts: Facts) -> Iterator[Found]:
    """Find a marker topic with one replica, on brokers of other hosts."""
    for path, fields in kafka_sinks(facts):
        hosts = [server.rpartition(":")[0].strip() for server in str(fields.get("servers") or "").split(",")]
        local = all(_LOOPBACK.fullmatch(host) for host in hosts)
        if fields.get("replication") == 1 and not (fields.get("servers") and local):
            yield Found(
                f"{path}.replication",
                "1",
                "If the broker with the markers is lost, the sink does not know which batch it has written last, and "
                "may write it twice.",
                set_key(f"{path}.replication", 3),
            )


@rule("secret-in-plain-text", Severity.WARNING, "passwords and keys in the file", steered=True)
def secret_in_plain_text(facts: Facts) -> Iterator[Found]:
    """Find values whose names say that they are secret, or texts with a secret inside."""
    settings = facts.settings
    for section, values in (
        ("spark.conf", settings.spark.conf),
        ("input", settings.input),
        ("output", settings.output),
    ):
        for path in _secrets(values, section):
            yield Found(
                path,
                HIDDEN,
                "Who reads the file, or a copy of it in a repository, has the secret.",
                _hiding(path, section),
            )


def _hiding(path: str, section: str) -> str:
    """Return where a secret belongs."""
    if section == "spark.conf":
        return "# move the property to spark-defaults.conf, which only the user of the driver can read"
    entry, options, name = path.partition(".options.")
    if entry.endswith(".kafka") and options:
        return f"# rename {path} to {name}_env, and give it the name of an environment variable"
    if options and name.startswith("kafka."):
        own = name.removeprefix("kafka.")
        return f"# read the topic through {entry}.kafka, whose options take {own}_env: VARIABLE"
    return f"# take {path} out of the file, and read it from the environment"


def _secrets(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of secrets below a path."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, f"{path}.{name}")
    elif isinstance(value, str) and value.strip() and not value.startswith("${"):
        named = _SECRET.search(path) and not _NO_SECRET.search(path)
        if named or scrubbed(value) != value:
            yield path


@rule("metrics-open", Severity.ADVICE, "metrics on an address that others can reach")
def metrics_open(facts: Facts) -> Iterator[Found]:
    """Find an endpoint without authentication that is not on loopback."""
    report = facts.settings.report
    if report.metrics_port is not None and not _LOOPBACK.fullmatch(report.metrics_host):
        yield Found(
            "report.metrics.host",
            report.metrics_host,
            "The endpoint has no authentication: everybody who reaches the address reads names of hosts, tasks and "
            "topics.",
            set_key("report.metrics.host", "127.0.0.1"),
        )


@rule("report-keys-ignored", Severity.WARNING, "keys of the report that need another one")
def report_keys_ignored(facts: Facts) -> Iterator[Found]:
    """Find keys that only have an effect beside another."""
    report = facts.settings.report
    if report.log_tasks and report.log is None:
        why = "Lines for each task that moves are written only if log lines are."
        yield Found("report.log.tasks", "true, and report.log is none", why, set_key("report.log", "text"))
    if "report.metrics.host" in facts.written and report.metrics_port is None:
        path, what = "report.metrics.host", f"{report.metrics_host}, and no report.metrics.port"
        yield Found(
            path, what, "Metrics are served only on a given port.", set_key("report.metrics.port", 9404)
        )


RULES = (
    sink_of_your_own,
    sink_at_least_once,
    transaction_timeout,
    changed_topics,
    marker_replication,
    secret_in_plain_text,
    metrics_open,
    report_keys_ignored,
)
