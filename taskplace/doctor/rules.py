"""The rules of the doctor: each one finds one danger or one key without effect, and says the remedy.

A rule is a pure function of the facts. Its docstring says why a finding matters. Its decorator has the rest: the worst
severity, what it finds, and the facts that it needs. The table in docs/doctor.md is made of these.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from taskplace.doctor.facts import Facts, Need
from taskplace.durations import milliseconds
from taskplace.model.assignors import BUILT_IN
from taskplace.model.keys import as_yaml
from taskplace.redaction import HIDDEN, redacted, scrubbed
from taskplace.spec.paths import local_path
from taskplace.wording import count, lasting


class Severity(str, Enum):
    """How bad a finding is, worst first.

    - `error`: the stream does not start, or its answers are in danger
    - `warning`: a key has no effect, or the stream is needlessly slow or fragile
    - `advice`: it works; it could be better
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"

    __str__ = str.__str__


class Finding(Struct, frozen=True, kw_only=True):
    """A finding.

    - `rule`: the id of its rule
    - `path`: the key in the file, or what else is to be changed
    - `found`: the value, or what follows from it
    - `why`: why it matters, in one or two sentences
    - `remedy`: a line that can be pasted: options of the command line, or a command; behind a `#`, what a person does
    """

    rule: str
    severity: Severity
    path: str
    found: str
    why: str
    remedy: str


class Found(Struct, frozen=True):
    """What the function of a rule yields: a finding as far as it differs from the rule's."""

    path: str
    found: str
    remedy: str
    severity: Severity | None = None
    why: str = ""


class Rule(Struct, frozen=True):
    """One rule.

    - `id`: its name in reports; `severity`: of its worst findings
    - `finds`: one line for the table of rules; `why`: why its findings matter
    - `needs`: the facts without which it is left out
    - `steered`: whether it is also for a query that steering moves
    """

    id: str
    severity: Severity
    finds: str
    why: str
    find: Callable[[Facts], Iterator[Found]]
    needs: tuple[Need, ...] = ()
    steered: bool = False

    def findings(self, facts: Facts) -> tuple[Finding, ...]:
        """Return the findings, without secrets. The caller makes sure that the needed facts are there."""
        return tuple(
            Finding(
                rule=self.id,
                severity=each.severity or self.severity,
                path=each.path,
                found=str(redacted(each.found, each.path)),
                why=scrubbed(each.why or self.why),
                remedy=scrubbed(each.remedy),
            )
            for each in self.find(facts)
        )


#: All rules, in the order in which they are listed.
RULES: list[Rule] = []
Find = Callable[[Facts], Iterator[Found]]


def rule(
    severity: Severity, finds: str, *, needs: tuple[Need, ...] = (), steered: bool = False
) -> Callable[[Find], Rule]:
    """Make a rule of a function: its name becomes the id, its docstring the reason."""

    def made(find: Find) -> Rule:
        id_, why = find.__name__.replace("_", "-"), " ".join((find.__doc__ or "").split())
        RULES.append(Rule(id_, severity, finds, why, find, needs=needs, steered=steered))
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
def start_refused(facts: Facts) -> Iterator[Found]:
    """The start is refused before anything runs."""
    if facts.refused:
        path, _, text = facts.refused.partition(": ")
        expected, hint = text.partition("expected ")[2], text.partition("; ")[2]
        remedy = f"# correct {path}: {f'expected {expected}' if expected else hint}".removesuffix(": ")
        yield Found(path, text.removeprefix("found "), remedy)


@rule(Severity.WARNING, "a checkpoint that a driver runs now", needs=("checkpoint",))
def driver_runs(facts: Facts) -> Iterator[Found]:
    """A start takes the checkpoint over with its first batch. The driver that runs it now then stops with `Fenced`."""
    if facts.checkpoint is not None and facts.checkpoint.driver:
        remedy = "# stop that driver first, or start with another checkpoint.dir"
        yield Found("checkpoint.dir", facts.checkpoint.driver, remedy)


@rule(Severity.ERROR, "damaged and missing files of the checkpoint", needs=("checkpoint",))
def checkpoint_damaged(facts: Facts) -> Iterator[Found]:
    """State that is in no other file is lost, once no executor has it."""
    if facts.checkpoint is not None and facts.checkpoint.damaged:
        first, *more = facts.checkpoint.damaged
        path = str(facts.checkpoint.path)
        command = f"taskplace inspect {shlex.quote(path)} --verify"
        remedy = f"# restore the files from a backup of the same run: {command} names them"
        yield Found(path, first + (f", and {len(more)} more files" if more else ""), remedy)


@rule(Severity.ERROR, "a checkpoint that this file cannot continue", needs=("checkpoint", "stores"))
def checkpoint_of_another_application(facts: Facts) -> Iterator[Found]:
    """The start refuses to continue: keys would belong to other tasks, or values would mean something else."""
    if facts.checkpoint is not None and facts.checkpoint.refused:
        remedy = "# go back to the file that wrote the checkpoint, or start with a new checkpoint.dir"
        yield Found("checkpoint.dir", "; ".join(facts.checkpoint.refused), remedy)


# ----------------------------------------------------------------------------------------------------- directories

_TEMPORARY = ("/tmp", "/dev/shm", "/run")  # emptied by the system: at a boot, or file by file after some days
_IN_MEMORY = ("tmpfs", "ramfs")
_NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "glusterfs",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.glusterfs",
)
_ONE_HOST = (*_IN_MEMORY, "ext4", "ext3", "xfs", "btrfs", "zfs", "overlay", "f2fs", "apfs")


@rule(Severity.WARNING, "a checkpoint or copies where the system or Spark removes files, or in memory")
def directory_not_kept(facts: Facts) -> Iterator[Found]:
    """Files there are in memory, or the system or Spark removes them. Without its checkpoint, a stream has lost its
    state and begins again. Lost copies are restored from the checkpoint, which takes time after a start.
    """
    local = [each.strip() for each in facts.spark.get("spark.local.dir").split(",") if each.strip()]
    directories = {
        "checkpoint.dir": (_checkpoint(facts), ["/var/tmp"]),
        "state.dir": (facts.settings.state_dir, local),
    }
    for key, (path, further) in directories.items():
        inside = any(path.is_relative_to(Path(each).absolute()) for each in (*_TEMPORARY, *further))
        if inside or facts.file_system(path) in _IN_MEMORY:
            yield Found(key, str(path), f"# set {key} to a directory on a disk")


@rule(Severity.WARNING, "copies on a network file system")
def state_on_network(facts: Facts) -> Iterator[Found]:
    """LMDB maps its files into memory, and its locks do not work between hosts. So it needs a local disk."""
    if (kind := facts.file_system(facts.settings.state_dir)) in _NETWORK:
        remedy = "# set state.dir to a directory on a local disk of each executor"
        yield Found("state.dir", f"{facts.settings.state_dir}, on {kind}", remedy)


@rule(Severity.WARNING, "a checkpoint on a local disk, with executors on several hosts")
def checkpoint_on_one_host(facts: Facts) -> Iterator[Found]:
    """Executors write changes and snapshots to the checkpoint, and restore from it. On another host they find another,
    empty directory.
    """
    path = _checkpoint(facts)
    if facts.spark.several_hosts and (kind := facts.file_system(path)) in _ONE_HOST:
        remedy = "# set checkpoint.dir to a directory that all hosts mount, such as NFS"
        yield Found("checkpoint.dir", f"{path}, on {kind}, and the master {facts.spark.master}", remedy)


def _checkpoint(facts: Facts) -> Path:
    return local_path(facts.settings.checkpoint_dir, "checkpoint.dir")


# ------------------------------------------------------------------------------------------------------------ state


@rule(Severity.WARNING, "state that grows for ever: stores without `ttl` and windows", needs=("stores",))
def state_without_end(facts: Facts) -> Iterator[Found]:
    """The store keeps every key for ever. So state, snapshots and restores grow with the age of the stream."""
    for store in facts.stores or ():
        if store.retention_ms is not None or store.processor == "table-join":  # as large as its input
            continue
        ids, options = store.processor == "deduplicate", store.path.endswith(".options")
        nodes = facts.topology.nodes if facts.topology is not None else ()
        times = {f"{node.options['event_time']}" for node in nodes if node.options.get("event_time")}
        remedy = "# give the store a `ttl`, and a column with the event time as `time`"
        if ids and options and len(times) == 1:
            remedy = f"{set_key(f'{store.path}.ttl', '7 days')} {set_key(f'{store.path}.time', times.pop())}"
        severity = None if ids and facts.settings.spark.trigger_interval is not None else Severity.ADVICE
        path = f"{store.path}.ttl" if options else store.path
        yield Found(path, f"store {store.name!r} has no ttl", remedy, severity)


#: From how many seconds on it is advice, or a warning, that all copies move; and the most warm-ups of a remedy.
_LONG, _TOO_LONG, _MOST_WARMUPS = 3600, 4 * 3600, 64
_WARMUPS, _PROBING = "placement.max.warmup.replicas", "placement.probing.rebalance.interval.ms"


@rule(Severity.WARNING, "`max.warmup.replicas` with which moves take hours", needs=("topology",))
def warm_ups_slow(facts: Facts) -> Iterator[Found]:
    """That is how long it may take until all copies have moved to new executors. A round also ends when its warm-ups
    have caught up, so it is less where restores are fast.
    """
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
    found = f"{warmups} warm-ups per {lasting(interval)}: {tasks} tasks{of_tasks} need {lasting(seconds)}"
    yield Found(_WARMUPS, found, remedy, None if seconds > _TOO_LONG else Severity.ADVICE)


@rule(Severity.WARNING, "rack tags without a value on any host: standbys are not kept apart")
def tag_without_values(facts: Facts) -> Iterator[Found]:
    """Executors get their tags by their host, from runtime.tags. Without a value, standbys are not kept apart."""
    given, names = facts.settings.runtime.tags or {}, facts.settings.placement.rack_aware_assignment_tags
    missing = [tag for tag in names if tag != "host" and not any(tag in tags for tags in given.values())]
    if missing:  # every executor has the tag `host` by itself
        remedy = f"# in runtime.tags: {{HOST: {{{missing[0]}: VALUE}}}}, for each host"
        found = f"no host has a value of {', '.join(missing)}"
        yield Found("placement.rack.aware.assignment.tags", found, remedy)


# ---------------------------------------------------------------------------------------------- sources and sinks

_FAIL, _LEVEL = "failOnDataLoss", "kafka.isolation.level"
_SPLIT = "Spark may read one partition in several parts. Then the rows of a key do not come in the order of the topic."
_MADE_AGAIN = (
    "A topic that was made again, or has lost records, is a warning only: rows may be missing, out of order, or there "
    "twice. Set it for the one start that needs it."
)
_SKIPPED = "Records that the topic removed before they were read are skipped without an error."
_ABORTED = "If a producer uses transactions, records of aborted ones are counted as well."


@rule(Severity.WARNING, "Kafka options that skip or reorder records, or read those of aborted transactions")
def records_at_risk(facts: Facts) -> Iterator[Found]:
    """Find options of Spark's Kafka source, and `changed_topics: go-on`, which is meant for one start."""
    for section, given in (("input", facts.settings.input), ("output", facts.settings.output)):
        for name, entry in given.items():
            if isinstance(entry, Mapping):  # a class may have other keys there
                yield from _at_risk(f"{section}.{name}", entry)


def _at_risk(path: str, entry: Mapping[str, Any]) -> Iterator[Found]:
    if isinstance(fields := entry.get("kafka"), Mapping):
        if fields.get("changed_topics") == "go-on":
            at = f"{path}.kafka.changed_topics"
            yield Found(at, "go-on", set_key(at, "stop"), why=_MADE_AGAIN)
        return
    if f"{entry.get('format')}".lower() != "kafka":
        return
    given = entry.get("options")
    items = given.items() if isinstance(given, Mapping) else ()
    options = {str(key).lower(): f"{value}" for key, value in items}
    if options.get(_FAIL.lower(), "true").lower() == "false":
        at = f"{path}.options.{_FAIL}"
        yield Found(at, "false", set_key(at, True), why=_SKIPPED)
    for option in ("minPartitions", "maxRecordsPerPartition"):
        if option.lower() in options:
            at = f"{path}.options.{option}"
            yield Found(at, options[option.lower()], f"# remove {at}", why=_SPLIT)
    if (level := options.get(_LEVEL, "")).lower() != "read_committed":
        at, found = f"{path}.options.{_LEVEL}", level or "nothing, which is read_uncommitted"
        yield Found(at, found, set_key(at, "read_committed"), Severity.ADVICE, _ABORTED)


@rule(Severity.WARNING, "sources with a `partition_column` whose keys no task checks", needs=("topology",))
def keys_unchecked(facts: Facts) -> Iterator[Found]:
    """If a producer uses another partitioner, or the topic got more partitions, the rows of one key reach several
    tasks, and joins and counts are wrong without an error. Tasks compare samples of Kafka's keys if the rows have them.
    """
    for node in facts.topology.nodes if facts.topology is not None else ():
        options = node.options if node.kind == "source" and not node.internal and node.key else {}
        unchecked = options.get("key_bytes") is None and options.get("check_keys") is not False
        if options.get("partition_column") is not None and unchecked:
            path = f"topology.sources.{node.name}.options.key_bytes"
            remedy = f"{set_key(path, 'key')}  # with Kafka's column `key` in the rows; or check_keys: false"
            yield Found(path, "nothing", remedy)


#: Names of secrets. `taskplace.redaction` hides more: there, too much does no harm.
_SECRET = re.compile(
    r"(password|passwd|passphrase|secret|jaas\.config|token|ssl\.key\.pem|[._]pass|(api|access|private|account|secret)[._-]?key)"
    r"(?=$|[._])",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(?i)(location|file|path|provider|class|url|uri|endpoint|type|protocol|mechanism|enabled|env)$"
)


@rule(Severity.WARNING, "passwords and keys in the file", steered=True)
def secret_in_plain_text(facts: Facts) -> Iterator[Found]:
    """Everyone who reads the file, or a copy of it in a repository, has the secret."""
    settings = facts.settings
    sections = {"spark.conf": settings.spark.conf, "input": settings.input, "output": settings.output}
    for path in (path for section, values in sections.items() for path in _secrets(values, section)):
        remedy = f"# rename {path} to {path}_env, and give it the name of an environment variable"
        if path.startswith("spark.conf."):
            remedy = "# move the property to spark-defaults.conf, which only the user of the driver can read"
        elif ".kafka.options." not in path:
            remedy = f"# read the topic through `kafka`, whose options take NAME_env: VARIABLE, not {path}"
        yield Found(path, HIDDEN, remedy)


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
def locality_wait_short(facts: Facts) -> Iterator[Found]:
    """A task whose executor has no free slot within this time runs elsewhere. There it restores its state in the middle
    of the batch.
    """
    own = facts.settings.runtime.locality_wait_ms / 1000
    if facts.spark.seconds(_WAIT) is None and own < _SHORT_SECONDS and not facts.steered:
        yield Found(_OWN_WAIT, f"{own:g} s", set_key(_OWN_WAIT, 30_000))
    for key in (_WAIT, f"{_WAIT}.process", f"{_WAIT}.node"):
        seconds = facts.spark.seconds(key)
        if seconds is not None and seconds < _SHORT_SECONDS:
            yield Found(facts.spark.where(key), f"{seconds:g} s", set_key(f"spark.conf.{key}", "30s"))


@rule(Severity.WARNING, "speculative execution", steered=True)
def speculation(facts: Facts) -> Iterator[Found]:
    """Spark starts a second attempt of a slow task on another executor. It restores the task's state there, and takes a
    slot; only one of the two attempts counts.
    """
    if facts.spark.get("spark.speculation").strip().lower() == "true":
        remedy = set_key("spark.conf.spark.speculation", "false")
        yield Found(facts.spark.where("spark.speculation"), "true", remedy)


#: An executor without a task for less than this may be needed with the next rows.
_IDLE_SECONDS = 600.0


@rule(Severity.WARNING, "dynamic allocation that removes executors between two batches", steered=True)
def idle_timeout(facts: Facts) -> Iterator[Found]:
    """An executor without a task for this long is removed, with its copies. When rows come again, tasks move and
    standbys are restored.
    """
    key, trigger = "spark.dynamicAllocation.executorIdleTimeout", facts.settings.spark.trigger_interval
    seconds = facts.spark.seconds(key, unit="s") or 60.0
    between = 0.0 if trigger is None else milliseconds(trigger, "spark.trigger.interval") / 1000
    enough = max(_IDLE_SECONDS, 10 * between)
    dynamic = facts.spark.get("spark.dynamicAllocation.enabled").strip().lower() == "true"
    if dynamic and not facts.spark.local and seconds < enough:
        yield Found(facts.spark.where(key), lasting(seconds), set_key(f"spark.conf.{key}", f"{enough:.0f}s"))


#: The MiB of a Python worker with Arrow and LMDB, without rows; of the input of a bin; of Spark's least overhead.
_WORKER, _BIN, _LEAST_OVERHEAD = 128, 64, 384.0
_OVERHEAD = "spark.executor.memoryOverhead"


@rule(Severity.WARNING, "containers without room for Python workers: `memoryOverhead`", steered=True)
def worker_memory(facts: Facts) -> Iterator[Found]:
    """A worker holds 64 MiB of input, or one task with up to runtime.bytes.per.task, beside what the processors need. A
    container above its limit is killed.
    """
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
        need = f"{slots} Python workers, which need {usual} to {largest} MiB"
        remedy = set_key(f"spark.conf.{_OVERHEAD}", f"{largest}m")
        severity = None if beside < usual else Severity.ADVICE
        found = f"{beside:.0f} MiB beside the heap, and {need}"
        yield Found(facts.spark.where(_OVERHEAD), found, remedy, severity)


# ------------------------------------------------------------------------------------------------ keys without effect

_NOT_SPARKS = "Spark has no property of this name, so the value has no effect."


@rule(Severity.WARNING, "keys without effect: another key excludes them, or Spark has none", steered=True)
def ignored_key(facts: Facts) -> Iterator[Found]:
    """Find keys of the file that nothing reads."""
    rows = () if facts.steered else (*_without_effect(facts), *_spark_without_effect(facts))
    for path, found, why in rows:
        yield Found(path, found, f"# remove {path}", why=why)
    for name, value in {**facts.spark.conf, **facts.spark.file}.items():
        if meant := misspelled(name):
            remedy = f"# rename {name} to {meant}"
            yield Found(facts.spark.where(name), value or "nothing", remedy, why=_NOT_SPARKS)


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
            why = "Only a rack strategy weighs costs. On Spark there is none."
            yield f"{strategy}.{cost}", f"{given}", why
    assignor = BUILT_IN.get(config.task_assignor_class)
    if runtime.weights and assignor is not None and not assignor.balanced:
        why = f"The assignor `{config.task_assignor_class}` balances numbers of tasks, not weights."
        yield "runtime.weights", "weights", why
    if config.balance_factor != 1:
        why = "The factor is only reported, in the metrics of a plan. Plans are balanced as with 1."
        yield "placement.balance.factor", f"{config.balance_factor}", why
    if report.log_tasks and report.log is None:
        yield "report.log.tasks", "report.log is none", "Lines for tasks are written only if log lines are."
    if "report.metrics.host" in facts.written and report.metrics_port is None:
        yield "report.metrics.host", "no report.metrics.port", "Metrics are served only on a given port."


#: Beginnings of Spark's properties without effect, and why.
_UNUSED = {
    "spark.sql.streaming.checkpointLocation": "The stream's progress lies in checkpoint.dir.",
    "spark.sql.streaming.stateStore.": "Placed state does not use Spark's state stores.",
    "spark.sql.streaming.statefulOperator.": "Placed state does not use Spark's state stores.",
}


def _spark_without_effect(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Yield path, value and reason of Spark's properties, and of keys that these exclude."""
    conf, spark = facts.spark.conf, facts.settings.spark
    wait, own = facts.spark.seconds(_WAIT), facts.settings.runtime.locality_wait_ms
    if wait is not None and _OWN_WAIT in facts.written and wait * 1000 != own:
        why = "Spark's own property has priority over the key."
        yield _OWN_WAIT, f"{_WAIT} is {facts.spark.get(_WAIT)}", why
    for key, value in {"spark.master": spark.master, "spark.app.name": spark.app_name}.items():
        if value and conf.get(key, value) != value and key in facts.written:
            why = "The property in `spark.conf` has priority over the key."
            yield key, f"spark.conf.{key} is {conf[key]}", why
    for key in sorted({*conf, *facts.spark.file}):
        if unused := next((why for name, why in _UNUSED.items() if key.startswith(name)), None):
            yield facts.spark.where(key), facts.spark.get(key), unused


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
