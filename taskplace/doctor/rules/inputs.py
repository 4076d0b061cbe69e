"""Sources: how much a batch reads, and which records."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, remove, rule, set_key

_FILES = ("parquet", "json", "csv", "orc", "text", "xml", "avro")
#: By format, the option that limits a batch, other options that do, and a value to begin with.
_LIMITS: Mapping[str, tuple[str, tuple[str, ...], int]] = {
    "kafka": ("maxOffsetsPerTrigger", ("maxOffsetsPerTrigger",), 100_000),
    **dict.fromkeys(_FILES, ("maxFilesPerTrigger", ("maxFilesPerTrigger", "maxBytesPerTrigger"), 100)),
}
#: Options of a member of a consumer group. A task that reads a topic itself joins none.
_OF_GROUPS = (
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.instance.id",
    "group.protocol",
    "partition.assignment.strategy",
)


def spark_sources(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield path, format and options of each entry of `input` that names a source of Spark's.

    Names of options are in small letters.
    """
    for name, entry in _inputs(facts):
        if isinstance(kind := entry.get("format"), str):
            options = entry.get("options")
            given = options.items() if isinstance(options, Mapping) else ()
            yield f"input.{name}", kind.lower(), {str(key).lower(): f"{value}" for key, value in given}


def read_topics(facts: Facts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and fields of each entry of `input` whose topic tasks read themselves."""
    for name, entry in _inputs(facts):
        if isinstance(fields := entry.get("kafka"), Mapping):
            yield f"input.{name}.kafka", fields


def _inputs(facts: Facts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the entries that are sources. An application class may have other keys there."""
    for name, entry in facts.settings.input.items():
        if isinstance(entry, Mapping):
            yield name, entry


@rule(
    "first-batch-unlimited",
    Severity.ADVICE,
    "sources without a limit: the first batch reads all that is there",
)
def first_batch_unlimited(facts: Facts) -> Iterator[Found]:
    """Find sources without a limit of a batch."""
    why = (
        "The first batch, and one after a long stop, reads all that is there. A batch in which Spark brings one task "
        "more than runtime.bytes.per.task is refused; rows that a task reads itself go to a file above that."
    )
    for path, kind, options in spark_sources(facts):
        name, limits, number = _LIMITS.get(kind, ("", (), 0))
        if name and not any(limit.lower() in options for limit in limits):
            yield Found(f"{path}.options.{name}", "no limit", why, set_key(f"{path}.options.{name}", number))
    for path, fields in read_topics(facts):
        if "most_records" in fields and fields["most_records"] is None:
            yield Found(f"{path}.most_records", "no limit", why, set_key(f"{path}.most_records", 10_000))


@rule(
    "keys-unchecked",
    Severity.WARNING,
    "sources with a `partition_column` whose keys no task checks",
    needs=("topology",),
)
def keys_unchecked(facts: Facts) -> Iterator[Found]:
    """Find sources that trust the producers' partitioner. Topics that tasks read themselves are checked by default."""
    for node in facts.topology.nodes if facts.topology is not None else ():
        options = node.options if node.kind == "source" and not node.internal and node.key else {}
        if options.get("partition_column") is None or options.get("check_keys") is False:
            continue
        if options.get("key_bytes") is None:
            path = f"topology.sources.{node.name}.options"
            yield Found(
                f"{path}.key_bytes",
                "nothing",
                "If a producer uses another partitioner, or the topic got more partitions, the rows of one key reach "
                "several tasks, and joins and counts are wrong without an error. Tasks compare samples of Kafka's keys "
                "if the rows have them.",
                f"{set_key(f'{path}.key_bytes', 'key')}  # with Kafka's column `key` in the rows; "
                "or check_keys: false",
            )


@rule(
    "topics-unaligned",
    Severity.ADVICE,
    "joins and merges of topics that are not read in the order of their records' times",
    needs=("topology",),
)
def topics_unaligned(facts: Facts) -> Iterator[Found]:
    """Find `max.task.idle.ms: -1` beside nodes with several inputs."""
    nodes = facts.topology.nodes if facts.topology is not None else ()
    several = [node.name for node in nodes if len(node.parents) > 1]
    if several and facts.settings.runtime.max_task_idle_ms < 0 and any(read_topics(facts)):
        yield Found(
            "runtime.max.task.idle.ms",
            f"-1, and several inputs of {', '.join(several)}",
            "After a stop, a topic with fewer records is read ahead of the others, and rows are joined with later ones "
            "of a table. Other values read topics together, by the times of their records in Kafka. These need not be "
            "event times.",
            set_key("runtime.max.task.idle.ms", 0),
        )


@rule("data-loss-accepted", Severity.WARNING, "sources that go on after lost records")
def data_loss_accepted(facts: Facts) -> Iterator[Found]:
    """Find `failOnDataLoss: false`."""
    for path, kind, options in spark_sources(facts):
        if kind == "kafka" and options.get("failondataloss", "true").lower() == "false":
            yield Found(
                f"{path}.options.failOnDataLoss",
                "false",
                "Records that the topic's retention removed before they were read are skipped without an error. State "
                "then counts too little.",
                set_key(f"{path}.options.failOnDataLoss", True),
            )


@rule("order-lost", Severity.WARNING, "sources that read one partition in several parts")
def order_lost(facts: Facts) -> Iterator[Found]:
    """Find options that split a partition of a topic."""
    for path, kind, options in spark_sources(facts):
        for name in ("minPartitions", "maxRecordsPerPartition"):
            if kind == "kafka" and name.lower() in options:
                yield Found(
                    f"{path}.options.{name}",
                    options[name.lower()],
                    "Spark may read one partition in several parts. Then the rows of a key do not come in the order of "
                    "the topic.",
                    remove(f"{path}.options.{name}"),
                )


@rule("uncommitted-records", Severity.ADVICE, "Spark's Kafka source, which also reads aborted transactions")
def uncommitted_records(facts: Facts) -> Iterator[Found]:
    """Find sources that do not ask for committed records."""
    for path, kind, options in spark_sources(facts):
        if kind == "kafka" and options.get("kafka.isolation.level", "").lower() != "read_committed":
            option = f"{path}.options.kafka.isolation.level"
            yield Found(
                option,
                options.get("kafka.isolation.level", "nothing, which is read_uncommitted"),
                "If a producer uses transactions, records of aborted ones are counted as well.",
                set_key(option, "read_committed"),
            )


@rule(
    "group-options",
    Severity.WARNING,
    "timeouts of consumer groups that have no effect, or end sessions early",
)
def group_options(facts: Facts) -> Iterator[Found]:
    """Find options of groups where no group is joined, and heartbeats that are too rare for their session."""
    for path, fields in read_topics(facts):
        options = fields.get("options")
        options = options if isinstance(options, Mapping) else {}
        for name in _OF_GROUPS:
            if name in options:
                yield Found(
                    f"{path}.options.{name}",
                    f"{options[name]}",
                    "Tasks read ranges of offsets, and join no consumer group. The option has no effect.",
                    remove(f"{path}.options.{name}"),
                )
    for path, kind, options in spark_sources(facts):
        beat, session = (
            _number(options.get(f"kafka.{name}"), default)
            for name, default in (("heartbeat.interval.ms", 3000), ("session.timeout.ms", 45_000))
        )
        if kind == "kafka" and 3 * beat > session:
            name = f"{path}.options.kafka.heartbeat.interval.ms"
            yield Found(
                name,
                f"a heartbeat every {beat} ms in a session of {session} ms",
                "One or two late heartbeats end the session of a consumer. Three should fit into it.",
                set_key(name, session // 3),
            )


@rule("input-missing", Severity.ERROR, "input directories that do not exist on this host")
def input_missing(facts: Facts) -> Iterator[Found]:
    """Find directories that Spark would not find. It does not look at paths with wildcards, and neither does this."""
    for missing in facts.missing_inputs:
        near = f", but {missing.near} does" if missing.near else ""
        yield Found(
            missing.path,
            str(missing.directory),
            f"The directory does not exist{near}. Spark refuses a source of files without one.",
            set_key(missing.path, missing.near)
            if missing.near
            else f"# make the input first, as the comments of {facts.file} may say; an empty directory is enough for a "
            f"stream that waits for files: mkdir -p {shlex.quote(str(missing.directory))}",
            expected="a directory that exists"
            + (f"; did you mean {missing.near!r}?" if missing.near else ""),
        )


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


RULES = (
    first_batch_unlimited,
    keys_unchecked,
    data_loss_accepted,
    order_lost,
    uncommitted_records,
    topics_unaligned,
    group_options,
    input_missing,
)
