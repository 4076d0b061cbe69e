"""The rules of the doctor: each one finds one danger or one key without effect, and says the remedy.

A rule is a pure function of the facts. Its decorator has the rest: the id, the worst severity, what it finds, and the
facts that it needs. The table in docs/doctor.md is made of these.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from taskplace.doctor.facts import Facts, Need
from taskplace.durations import milliseconds
from taskplace.model.assignors import BUILT_IN
from taskplace.model.keys import as_yaml
from taskplace.redaction import HIDDEN, redacted, scrubbed
from taskplace.spec.paths import local_path
from taskplace.wording import count, lasting


class Severity(StrEnum):
    """How bad a finding is, worst first.

    - `error`: the stream does not start, or its answers are in danger
    - `warning`: a key has no effect, or the stream is needlessly slow or fragile
    - `advice`: it works; it could be better
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    - `path`: the key in the file, or what else is to be changed
    - `found`: the value, or what follows from it
    - `why`: why it matters, in one or two sentences
    - `remedy`: a line that can be pasted: options of the command line, or a command; behind a `#`, what a person does
    - `severity`: None for that of the rule; `rule`: its id, which `Rule.findings` sets
    """

    path: str
    found: str
    why: str
    remedy: str
    severity: Severity | None = None
    rule: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return {
            name: str(getattr(self, name)) for name in ("rule", "severity", "path", "found", "why", "remedy")
        }


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    - `id`: its name in reports; `severity`: of its worst findings
    - `finds`: one line for the table of rules
    - `needs`: the facts without which it is left out
    - `steered`: whether it is also for a query that steering moves
    """

    id: str
    severity: Severity
    finds: str
    find: Callable[[Facts], Iterator[Finding]]
    needs: tuple[Need, ...] = ()
    steered: bool = False

    def findings(self, facts: Facts) -> tuple[Finding, ...]:
        """Return the findings, without secrets. The caller makes sure that the needed facts are there."""
        return tuple(
            replace(
                found,
                rule=self.id,
                severity=found.severity or self.severity,
                found=str(redacted(found.found, found.path)),
                why=scrubbed(found.why),
                remedy=scrubbed(found.remedy),
            )
            for found in self.find(facts)
        )


#: All rules, in the order in which they are listed.
RULES: list[Rule] = []


def rule(
    severity: Severity, finds: str, *, needs: tuple[Need, ...] = (), steered: bool = False
) -> Callable[[Callable[[Facts], Iterator[Finding]]], Rule]:
    """Make a rule of a function, whose name becomes the id."""

    def made(find: Callable[[Facts], Iterator[Finding]]) -> Rule:
        RULES.append(Rule(find.__name__.replace("_", "-"), severity, finds, find, needs, steered))
        return RULES[-1]

    return made


def set_key(path: str, value: Any) -> str:
    """Return the option of the command line that sets a key.

    >>> set_key("placement.max.warmup.replicas", 16), set_key("topology.nodes.once.options.ttl", "1 day")
    ('--set placement.max.warmup.replicas=16', "--set 'topology.nodes.once.options.ttl=1 day'")
    """
    return f"--set {shlex.quote(f'{path}={as_yaml(value)}')}"


# ------------------------------------------------------------------------------------------ start and checkpoint


@rule(Severity.ERROR, "what `taskplace run --check` refuses")
def start_refused(facts: Facts) -> Iterator[Finding]:
    """Pass on the first error of a start that needs no Spark."""
    if facts.refused:
        path, _, text = facts.refused.partition(": ")
        expected, hint = text.partition("expected ")[2], text.partition("; ")[2]
        remedy = f"# correct {path}: {f'expected {expected}' if expected else hint}".removesuffix(": ")
        yield Finding(path, text.removeprefix("found "), "The start is refused before anything runs.", remedy)


@rule(Severity.WARNING, "a checkpoint that a driver runs now", needs=("checkpoint",))
def driver_runs(facts: Facts) -> Iterator[Finding]:
    """Find a running driver, which a start would fence."""
    if facts.checkpoint is not None and facts.checkpoint.driver:
        yield Finding(
            "checkpoint.dir",
            facts.checkpoint.driver,
            "A start takes the checkpoint over with its first batch. The driver that runs it now then stops with "
            "`Fenced`.",
            "# stop that driver first, or start with another checkpoint.dir",
        )


@rule(Severity.ERROR, "damaged and missing files of the checkpoint", needs=("checkpoint",))
def checkpoint_damaged(facts: Facts) -> Iterator[Finding]:
    """Pass on the result of an inspection. It compares lengths, and does not read the files."""
    if facts.checkpoint is not None and facts.checkpoint.damaged:
        first, *more = facts.checkpoint.damaged
        path = str(facts.checkpoint.path)
        yield Finding(
            path,
            first + (f", and {len(more)} more files" if more else ""),
            "State that is in no other file is lost, once no executor has it.",
            f"# restore the files from a backup of the same run: taskplace inspect {shlex.quote(path)} --verify names "
            "them",
        )


@rule(
    Severity.ERROR,
    "a checkpoint that this file cannot continue: partitions, stores, sources, types of keys",
    needs=("checkpoint", "stores"),
)
def checkpoint_of_another_application(facts: Facts) -> Iterator[Finding]:
    """Pass on why a start would refuse the checkpoint."""
    if facts.checkpoint is not None and facts.checkpoint.refused:
        yield Finding(
            "checkpoint.dir",
            "; ".join(facts.checkpoint.refused),
            "The start refuses to continue: keys would belong to other tasks, or values would mean something else.",
            "# go back to the file that wrote the checkpoint, or start with a new checkpoint.dir",
        )


# ----------------------------------------------------------------------------------------------------- directories

_TEMPORARY = ("/tmp", "/dev/shm", "/run")  # emptied by the system: at a boot, or file by file after some days
_IN_MEMORY = ("tmpfs", "ramfs")
_NETWORK = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.glusterfs"]
)
_ONE_HOST = (*_IN_MEMORY, "ext4", "ext3", "xfs", "btrfs", "zfs", "overlay", "f2fs", "apfs")


@rule(Severity.WARNING, "a checkpoint or copies where the system or Spark removes files, or in memory")
def directory_not_kept(facts: Facts) -> Iterator[Finding]:
    """Find directories below `/tmp` and its like, in memory, and copies below `spark.local.dir`."""
    lost = "Without its checkpoint, a stream has lost its state and begins again."
    restored = "Lost copies are restored from the checkpoint, which takes time after a start."
    own = [each.strip() for each in facts.spark.get("spark.local.dir").split(",") if each.strip()]
    for key, path, why, further in (
        ("checkpoint.dir", _checkpoint(facts), lost, ["/var/tmp"]),
        ("state.dir", facts.settings.state_dir, restored, own),
    ):
        inside = any(path.is_relative_to(Path(each).absolute()) for each in (*_TEMPORARY, *further))
        if inside or facts.file_system(path) in _IN_MEMORY:
            what = f"Files there are in memory, or the system or Spark removes them. {why}"
            yield Finding(key, str(path), what, f"# set {key} to a directory on a disk")


@rule(Severity.WARNING, "copies on a network file system")
def state_on_network(facts: Facts) -> Iterator[Finding]:
    """Find a state directory that is not on a local disk. Looks at this host only."""
    if (kind := facts.file_system(facts.settings.state_dir)) in _NETWORK:
        yield Finding(
            "state.dir",
            f"{facts.settings.state_dir}, on {kind}",
            "LMDB maps its files into memory, and its locks do not work between hosts. So it needs a local disk.",
            "# set state.dir to a directory on a local disk of each executor",
        )


@rule(Severity.WARNING, "a checkpoint on a local disk, with executors on several hosts")
def checkpoint_on_one_host(facts: Facts) -> Iterator[Finding]:
    """Find a checkpoint that executors on other hosts do not see."""
    path = _checkpoint(facts)
    if facts.spark.several_hosts and (kind := facts.file_system(path)) in _ONE_HOST:
        yield Finding(
            "checkpoint.dir",
            f"{path}, on {kind}, and the master {facts.spark.master}",
            "Executors write changes and snapshots to the checkpoint, and restore from it. On another host they find "
            "another, empty directory.",
            "# set checkpoint.dir to a directory that all hosts mount, such as NFS",
        )


def _checkpoint(facts: Facts) -> Path:
    return local_path(facts.settings.checkpoint_dir, "checkpoint.dir")


# ------------------------------------------------------------------------------------------------------------ state


@rule(Severity.WARNING, "state that grows for ever: stores without `ttl` and windows", needs=("stores",))
def state_without_end(facts: Facts) -> Iterator[Finding]:
    """Find stores that keep every key. A table is as large as its input, so it is left out."""
    for store in facts.stores or ():
        if store.retention_ms is not None or store.processor == "table-join":
            continue
        ids, options = store.processor == "deduplicate", store.path.endswith(".options")
        nodes = facts.topology.nodes if facts.topology is not None else ()
        times = {f"{node.options['event_time']}" for node in nodes if node.options.get("event_time")}
        remedy = "# give the store a `ttl`, and a column with the event time as `time`"
        if ids and options and len(times) == 1:
            remedy = f"{set_key(f'{store.path}.ttl', '7 days')} {set_key(f'{store.path}.time', times.pop())}"
        yield Finding(
            f"{store.path}.ttl" if options else store.path,
            f"store {store.name!r} has no ttl",
            f"The store keeps {'the id of each row' if ids else 'an entry for each key'} for ever. So state, snapshots "
            "and restores grow with the age of the stream.",
            remedy,
            None if ids and facts.settings.spark.trigger_interval is not None else Severity.ADVICE,
        )


#: From how many seconds on it is advice, or a warning, that all copies move; and the most warm-ups of a remedy.
_LONG, _TOO_LONG, _MOST_WARMUPS = 3600, 4 * 3600, 64
_WARMUPS, _PROBING = "placement.max.warmup.replicas", "placement.probing.rebalance.interval.ms"


@rule(
    Severity.WARNING,
    "the time in which all copies can move, at `max.warmup.replicas` per `probing.rebalance.interval.ms`",
    needs=("topology",),
)
def warm_ups_slow(facts: Facts) -> Iterator[Finding]:
    """Compare the longest time in which all copies move with an hour."""
    config = facts.settings.placement
    if facts.topology is None or config.unbounded or facts.spark.local:  # nothing warms up
        return
    tasks = sum(sub.partitions or 0 for sub in facts.topology.subtopologies if sub.stateful)
    standbys, warmups = config.num_standby_replicas, config.max_warmup_replicas
    interval, copies = config.probing_rebalance_interval_ms / 1000, tasks * (1 + standbys)
    rounds = math.ceil(copies / warmups)
    if (seconds := rounds * interval) <= _LONG or rounds < 2:
        return
    of_tasks = f" with {count(standbys, 'standby')}, {copies} copies," if standbys else ""
    raised = max(warmups, min(_MOST_WARMUPS, math.ceil(copies * interval / _LONG)))
    remedy = set_key(_WARMUPS, raised)
    if (shorter := int(1000 * _LONG / math.ceil(copies / raised))) < 1000 * interval:
        remedy += f" {set_key(_PROBING, max(1000, shorter))}"
    yield Finding(
        _WARMUPS,
        f"{warmups} warm-ups per {lasting(interval)}: {tasks} tasks{of_tasks} need {lasting(seconds)}",
        "That is how long it may take until all copies have moved to new executors. A round also ends when its "
        "warm-ups have caught up, so it is less where restores are fast.",
        remedy,
        None if seconds > _TOO_LONG else Severity.ADVICE,
    )


@rule(Severity.WARNING, "rack tags without a value on any host: standbys are not kept apart")
def tag_without_values(facts: Facts) -> Iterator[Finding]:
    """Find tags that no host has. Every executor has the tag `host` by itself."""
    given, names = facts.settings.runtime.tags or {}, facts.settings.placement.rack_aware_assignment_tags
    missing = [tag for tag in names if tag != "host" and not any(tag in tags for tags in given.values())]
    if missing:
        yield Finding(
            "placement.rack.aware.assignment.tags",
            f"no host has a value of {', '.join(missing)}",
            "Executors get their tags by their host, from runtime.tags. Without a value, standbys are not kept apart.",
            f"# in runtime.tags: {{HOST: {{{missing[0]}: VALUE}}}}, for each host",
        )


# ---------------------------------------------------------------------------------------------- sources and sinks

_FAIL, _LEVEL = "failOnDataLoss", "kafka.isolation.level"
_SPLIT = "Spark may read one partition in several parts. Then the rows of a key do not come in the order of the topic."


@rule(
    Severity.WARNING,
    "Kafka options by which records are skipped, reordered, or read although they were aborted",
)
def records_at_risk(facts: Facts) -> Iterator[Finding]:
    """Find options of Spark's Kafka source, and `changed_topics: go-on`, which is meant for one start."""
    for section, name, entry in _kafka_entries(facts):
        path, given = f"{section}.{name}", entry.get("options")
        items = given.items() if isinstance(given, Mapping) else ()
        options = {str(key).lower(): f"{value}" for key, value in items}
        if isinstance(fields := entry.get("kafka"), Mapping):
            if fields.get("changed_topics") == "go-on":
                why = (
                    "A topic that was made again, or has lost records, is a warning only: rows may be missing, out of "
                    "order, or there twice. Set it for the one start that needs it."
                )
                at = f"{path}.kafka.changed_topics"
                yield Finding(at, "go-on", why, set_key(at, "stop"))
            continue
        if options.get(_FAIL.lower(), "true").lower() == "false":
            why = "Records that the topic removed before they were read are skipped without an error."
            at = f"{path}.options.{_FAIL}"
            yield Finding(at, "false", why, set_key(at, True))
        for option in ("minPartitions", "maxRecordsPerPartition"):
            if option.lower() in options:
                at = f"{path}.options.{option}"
                yield Finding(at, options[option.lower()], _SPLIT, f"# remove {at}")
        if (level := options.get(_LEVEL, "")).lower() != "read_committed":
            why = "If a producer uses transactions, records of aborted ones are counted as well."
            at = f"{path}.options.{_LEVEL}"
            remedy = set_key(at, "read_committed")
            yield Finding(at, level or "nothing, which is read_uncommitted", why, remedy, Severity.ADVICE)


def _kafka_entries(facts: Facts) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield section, name and fields of each source and sink of Kafka. A class may have other keys there."""
    for section, given in (("input", facts.settings.input), ("output", facts.settings.output)):
        for name, entry in given.items():
            if isinstance(entry, Mapping) and (
                isinstance(entry.get("kafka"), Mapping) or f"{entry.get('format')}".lower() == "kafka"
            ):
                yield section, name, entry


@rule(Severity.WARNING, "sources with a `partition_column` whose keys no task checks", needs=("topology",))
def keys_unchecked(facts: Facts) -> Iterator[Finding]:
    """Find sources that trust the producers' partitioner. Topics that tasks read themselves are checked by default."""
    for node in facts.topology.nodes if facts.topology is not None else ():
        options = node.options if node.kind == "source" and not node.internal and node.key else {}
        unchecked = options.get("key_bytes") is None and options.get("check_keys") is not False
        if options.get("partition_column") is not None and unchecked:
            path = f"topology.sources.{node.name}.options.key_bytes"
            yield Finding(
                path,
                "nothing",
                "If a producer uses another partitioner, or the topic got more partitions, the rows of one key reach "
                "several tasks, and joins and counts are wrong without an error. Tasks compare samples of Kafka's keys "
                "if the rows have them.",
                f"{set_key(path, 'key')}  # with Kafka's column `key` in the rows; or check_keys: false",
            )


#: Names of secrets. `taskplace.redaction` hides more: there, too much does no harm.
_SECRET = re.compile(
    r"(password|passwd|passphrase|secret|jaas\.config|token|ssl\.key\.pem|[._]pass|(api|access|private|account|secret)[._-]?key)"
    r"(?=$|[._])",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(location|file|path|provider|class|url|uri|endpoint|type|protocol|mechanism|enabled|env)$",
    re.IGNORECASE,
)


@rule(Severity.WARNING, "passwords and keys in the file", steered=True)
def secret_in_plain_text(facts: Facts) -> Iterator[Finding]:
    """Find values whose names say that they are secret, and texts with a secret inside."""
    settings = facts.settings
    sections = {"spark.conf": settings.spark.conf, "input": settings.input, "output": settings.output}
    for path in (path for section, values in sections.items() for path in _secrets(values, section)):
        remedy = f"# rename {path} to {path}_env, and give it the name of an environment variable"
        if path.startswith("spark.conf."):
            remedy = "# move the property to spark-defaults.conf, which only the user of the driver can read"
        elif ".kafka.options." not in path:
            remedy = (
                f"# read the topic through `kafka`, whose options take NAME_env: VARIABLE, and remove {path}"
            )
        why = "Everyone who reads the file, or a copy of it in a repository, has the secret."
        yield Finding(path, HIDDEN, why, remedy)


def _secrets(value: Any, path: str) -> Iterator[str]:
    """Yield the paths of secrets below a path."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, f"{path}.{name}")
    elif isinstance(value, str) and value.strip() and not value.startswith("${"):
        named = _SECRET.search(path) and not _NO_SECRET.search(path)
        if named or scrubbed(value) != value:
            yield path


# ------------------------------------------------------------------------------------------------------------ Spark

#: A task that finds its executor busy waits for a slot. Few bins run for less than this.
_SHORT_SECONDS = 3.0
_WAIT, _OWN_WAIT = "spark.locality.wait", "runtime.locality.wait.ms"


@rule(Severity.WARNING, "a locality wait of less than 3 s", steered=True)
def locality_wait_short(facts: Facts) -> Iterator[Finding]:
    """Find a wait after which Spark runs tasks elsewhere. Spark's own key has priority over `runtime`'s."""
    why = (
        "A task whose executor has no free slot within this time runs elsewhere. There it restores its state in the "
        "middle of the batch."
    )
    own = facts.settings.runtime.locality_wait_ms / 1000
    if facts.spark.seconds(_WAIT) is None and own < _SHORT_SECONDS and not facts.steered:
        yield Finding(_OWN_WAIT, f"{own:g} s", why, set_key(_OWN_WAIT, 30_000))
    for key in (_WAIT, f"{_WAIT}.process", f"{_WAIT}.node"):
        seconds = facts.spark.seconds(key)
        if seconds is not None and seconds < _SHORT_SECONDS:
            yield Finding(facts.spark.where(key), f"{seconds:g} s", why, set_key(f"spark.conf.{key}", "30s"))


@rule(Severity.WARNING, "speculative execution", steered=True)
def speculation(facts: Facts) -> Iterator[Finding]:
    """Find `spark.speculation`."""
    if facts.spark.flag("spark.speculation"):
        yield Finding(
            facts.spark.where("spark.speculation"),
            "true",
            "Spark starts a second attempt of a slow task on another executor. It restores the task's state there, and "
            "takes a slot; only one of the two attempts counts.",
            set_key("spark.conf.spark.speculation", "false"),
        )


#: An executor without a task for less than this may be needed with the next rows.
_IDLE_SECONDS = 600.0


@rule(Severity.WARNING, "dynamic allocation that removes executors between two batches", steered=True)
def idle_timeout(facts: Facts) -> Iterator[Finding]:
    """Compare the idle timeout with ten minutes, and with the trigger's interval."""
    key, trigger = "spark.dynamicAllocation.executorIdleTimeout", facts.settings.spark.trigger_interval
    seconds = facts.spark.seconds(key, unit="s") or 60.0
    between = 0.0 if trigger is None else milliseconds(trigger, "spark.trigger.interval") / 1000
    enough = max(_IDLE_SECONDS, 10 * between)
    if facts.spark.flag("spark.dynamicAllocation.enabled") and not facts.spark.local and seconds < enough:
        yield Finding(
            facts.spark.where(key),
            lasting(seconds),
            "An executor without a task for this long is removed, with its copies. When rows come again, tasks move "
            "and standbys are restored.",
            set_key(f"spark.conf.{key}", f"{enough:.0f}s"),
        )


#: The MiB of a Python worker with Arrow and LMDB, without rows; of the input of a bin; of Spark's least overhead.
_WORKER, _BIN, _LEAST_OVERHEAD = 128, 64, 384.0
_OVERHEAD = "spark.executor.memoryOverhead"


@rule(Severity.WARNING, "containers without room for Python workers: `memoryOverhead`", steered=True)
def worker_memory(facts: Facts) -> Iterator[Finding]:
    """Compare the memory beside the heap with what the Python workers of all slots need."""
    slots = facts.spark.number("spark.executor.cores", 1) // (facts.spark.number("spark.task.cpus", 1) or 1)
    if not facts.spark.containers or not slots:
        return
    share = facts.spark.get(f"{_OVERHEAD}Factor", "0.1").strip()
    least = facts.spark.mebibytes("spark.executor.minMemoryOverhead", _LEAST_OVERHEAD)
    heap = facts.spark.mebibytes("spark.executor.memory", 1024.0)
    usual_overhead = max(least, heap * (float(share) if re.fullmatch(r"\d+(\.\d+)?", share) else 0.1))
    beside = facts.spark.mebibytes(_OVERHEAD, usual_overhead)
    beside += facts.spark.mebibytes("spark.executor.pyspark.memory", 0.0)
    usual = slots * (_WORKER + _BIN)
    largest = slots * (_WORKER + max(_BIN, facts.settings.runtime.bytes_per_task >> 20))
    if beside < largest:
        yield Finding(
            facts.spark.where(_OVERHEAD),
            f"{beside:.0f} MiB beside the heap, and {slots} Python workers, which need {usual} to {largest} MiB",
            f"A worker holds {_BIN} MiB of input, or one task with up to runtime.bytes.per.task, beside what the "
            "processors need. A container above its limit is killed.",
            set_key(f"spark.conf.{_OVERHEAD}", f"{largest}m"),
            None if beside < usual else Severity.ADVICE,
        )


# ------------------------------------------------------------------------------------------------ keys without effect


@rule(
    Severity.WARNING,
    "keys without effect: another key excludes them, or Spark has no such property",
    steered=True,
)
def ignored_key(facts: Facts) -> Iterator[Finding]:
    """Find keys of the file that nothing reads."""
    rows = () if facts.steered else (*_without_effect(facts), *_spark_without_effect(facts))
    for path, found, why in rows:
        yield Finding(path, found, why, f"# remove {path}")
    for name, value in {**facts.spark.conf, **facts.spark.file}.items():
        if meant := misspelled(name):
            why = "Spark has no property of this name, so the value has no effect."
            yield Finding(facts.spark.where(name), value or "nothing", why, f"# rename {name} to {meant}")


def _without_effect(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield path, value and reason of keys that another key excludes."""
    config, runtime, report = facts.settings.placement, facts.settings.runtime, facts.settings.report
    strategy = "placement.rack.aware.assignment"
    if config.unbounded:
        why = "With this acceptable.recovery.lag every executor counts as caught up, so nothing warms up."
        for path in (_WARMUPS, _PROBING, "placement.acceptable.recovery.seconds"):
            if path in facts.written:
                yield path, f"acceptable.recovery.lag is {config.acceptable_recovery_lag}", why
    if runtime.tags and not config.rack_aware_assignment_tags:
        yield "runtime.tags", "tags", f"Only the tags that {strategy}.tags names are used."
    if config.rack_aware_assignment_tags and not config.num_standby_replicas:
        yield f"{strategy}.tags", "no standbys", "The tags keep the standbys of a task apart."
    for cost in ("traffic_cost", "non_overlap_cost"):
        given = getattr(config, f"rack_aware_assignment_{cost}")
        if given is not None and config.rack_aware_assignment_strategy == "none":
            yield (
                f"{strategy}.{cost}",
                f"{given}",
                "Only a rack strategy weighs costs. On Spark there is none.",
            )
    assignor = BUILT_IN.get(config.task_assignor_class)
    if runtime.weights and assignor is not None and not assignor.balanced:
        yield (
            "runtime.weights",
            "weights",
            f"The assignor `{config.task_assignor_class}` balances the number of tasks, whatever they weigh.",
        )
    if config.balance_factor != 1:
        why = "The factor is only reported, in the metrics of a plan. Plans are balanced as with 1."
        yield "placement.balance.factor", f"{config.balance_factor}", why
    if report.log_tasks and report.log is None:
        yield "report.log.tasks", "report.log is none", "Lines for tasks are written only if log lines are."
    if "report.metrics.host" in facts.written and report.metrics_port is None:
        yield "report.metrics.host", "no report.metrics.port", "Metrics are served only on a given port."


_STORES = ("spark.sql.streaming.stateStore.", "spark.sql.streaming.statefulOperator.")


def _spark_without_effect(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield path, value and reason of Spark's properties, and of keys that these exclude."""
    conf, spark = facts.spark.conf, facts.settings.spark
    wait, own = facts.spark.seconds(_WAIT), facts.settings.runtime.locality_wait_ms
    if wait is not None and _OWN_WAIT in facts.written and wait * 1000 != own:
        yield (
            _OWN_WAIT,
            f"{_WAIT} is {facts.spark.get(_WAIT)}",
            "Spark's own property has priority over the key.",
        )
    for key, value in {"spark.master": spark.master, "spark.app.name": spark.app_name}.items():
        if value and conf.get(key, value) != value and key in facts.written:
            yield (
                key,
                f"spark.conf.{key} is {conf[key]}",
                "The property in `spark.conf` has priority over the key.",
            )
    for key in sorted({*conf, *facts.spark.file}):
        if key == "spark.sql.streaming.checkpointLocation":
            yield (
                facts.spark.where(key),
                facts.spark.get(key),
                "The stream's progress lies in checkpoint.dir.",
            )
        elif key.startswith(_STORES):
            yield (
                facts.spark.where(key),
                facts.spark.get(key),
                "Placed state does not use Spark's state stores.",
            )


#: Properties of Spark that an application is likely to set, to find those that were misspelled. Spark takes any name,
#: and ignores those that it does not know. A test compares the list with the names in Spark's own classes.
_PROPERTIES = """
app.name master local.dir cores.max default.parallelism serializer speculation decommission.enabled network.timeout
executor.cores executor.instances executor.memory executor.memoryOverhead executor.memoryOverheadFactor
executor.pyspark.memory executor.extraJavaOptions driver.cores driver.memory driver.memoryOverhead
driver.memoryOverheadFactor driver.maxResultSize driver.host driver.extraJavaOptions dynamicAllocation.enabled
dynamicAllocation.initialExecutors dynamicAllocation.minExecutors dynamicAllocation.maxExecutors
dynamicAllocation.executorIdleTimeout dynamicAllocation.shuffleTracking.enabled locality.wait locality.wait.process
locality.wait.node locality.wait.rack task.cpus task.maxFailures scheduler.mode shuffle.service.enabled
shuffle.service.db.enabled sql.shuffle.partitions sql.session.timeZone sql.adaptive.enabled python.worker.reuse
executor.minMemoryOverhead driver.minMemoryOverhead
"""
_KNOWN = frozenset(f"spark.{name}" for name in _PROPERTIES.split())
#: How alike two names are that differ by a letter or two.
_ALIKE = 0.94


def misspelled(name: str) -> str:
    """Return the property that a name is likely to mean, or "" if the name is not doubted.

    >>> misspelled("spark.speculaton"), misspelled("spark.executor.Memory"), misspelled("speculation")
    ('spark.speculation', 'spark.executor.memory', 'spark.speculation')
    >>> misspelled("spark.speculation"), misspelled("spark.shop.level"), misspelled("hive.exec.parallel")
    ('', '', '')
    """
    if name in _KNOWN:
        return ""
    if not name.startswith("spark."):
        return f"spark.{name}" if f"spark.{name}" in _KNOWN else ""
    by_letters = {known.lower(): known for known in _KNOWN}
    near = difflib.get_close_matches(name.lower(), by_letters, n=1, cutoff=_ALIKE)
    return by_letters[near[0]] if near else ""
