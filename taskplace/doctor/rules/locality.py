"""Spark's scheduler: what keeps tasks where their state is."""

from __future__ import annotations

from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, remove, rule, set_key

_WAIT, _OWN_WAIT = "spark.locality.wait", "runtime.locality.wait.ms"
_LEVELS = (f"{_WAIT}.process", f"{_WAIT}.node")
#: A task that finds its executor busy waits for a slot. Shorter attempts of bins than this are rare.
SHORT_SECONDS = 3.0
_ELSEWHERE = (
    "A task whose executor has no free slot within this time runs elsewhere. There it restores its state in the middle "
    "of the batch."
)


def _set_spark(key: str, value: str) -> str:
    return set_key(f"spark.conf.{key}", value)


@rule("locality-wait-short", Severity.WARNING, "a locality wait of less than 3 s", steered=True)
def locality_wait_short(facts: Facts) -> Iterator[Found]:
    """Find a wait after which Spark runs tasks elsewhere. Spark's own key has priority over `runtime`'s."""
    own = facts.settings.runtime.locality_wait_ms / 1000 if not facts.steered else SHORT_SECONDS
    whole = facts.spark.seconds(_WAIT)
    if whole is None and own < SHORT_SECONDS:
        yield Found(_OWN_WAIT, f"{own:g} s", _ELSEWHERE, set_key(_OWN_WAIT, 30_000))
    for key in (_WAIT, *_LEVELS):
        seconds = facts.spark.seconds(key)
        if seconds is not None and seconds < SHORT_SECONDS:
            yield Found(facts.spark.where(key), f"{seconds:g} s", _ELSEWHERE, _set_spark(key, "30s"))


@rule("locality-wait-ignored", Severity.WARNING, "`locality.wait.ms` beside `spark.locality.wait`")
def locality_wait_ignored(facts: Facts) -> Iterator[Found]:
    """Find the key of `runtime` that Spark's own key makes ineffective."""
    seconds, own = facts.spark.seconds(_WAIT), facts.settings.runtime.locality_wait_ms
    if seconds is not None and _OWN_WAIT in facts.written and seconds * 1000 != own:
        yield Found(
            _OWN_WAIT,
            f"{own} ms, and {facts.spark.where(_WAIT)} = {facts.spark.get(_WAIT)}",
            "The key sets Spark's property only where that is not set. So the key has no effect here.",
            remove(_OWN_WAIT),
        )


@rule("speculation", Severity.WARNING, "speculative execution", steered=True)
def speculation(facts: Facts) -> Iterator[Found]:
    """Find `spark.speculation`."""
    key = "spark.speculation"
    if facts.spark.flag(key):
        yield Found(
            facts.spark.where(key),
            "true",
            "Spark starts a second attempt of a slow task on another executor. It restores the task's state there, "
            "and takes a slot; only one of the two attempts counts.",
            _set_spark(key, "false"),
        )


@rule("adaptive-execution", Severity.ADVICE, "adaptive query execution (AQE), switched on by hand")
def adaptive_execution(facts: Facts) -> Iterator[Found]:
    """Find AQE that was asked for: placed batches are planned without it."""
    key = "spark.sql.adaptive.enabled"
    if facts.spark.flag(key):
        yield Found(
            facts.spark.where(key),
            "true",
            "Placed batches are planned without AQE, because it would merge the partitions of tasks and run the "
            "shuffle while planning. The property only applies to your own queries.",
            _set_spark(key, "false"),
        )


@rule("scheduler-not-fair", Severity.WARNING, "a scheduler that is not FAIR")
def scheduler_not_fair(facts: Facts) -> Iterator[Found]:
    """Find FIFO in the application's file, which has priority over what `taskplace run` sets."""
    key = "spark.scheduler.mode"
    mode = facts.spark.conf.get(key)
    if mode is not None and mode.strip().upper() != "FAIR":
        yield Found(
            facts.spark.where(key),
            mode,
            "The jobs of standbys and warm-ups come first if they were submitted first, so they delay batches. In FAIR "
            "mode they run beside them.",
            _set_spark(key, "FAIR"),
        )


@rule("reduce-locality", Severity.WARNING, "`spark.shuffle.reduceLocality.enabled`")
def reduce_locality(facts: Facts) -> Iterator[Found]:
    """Find the property in the application's file, which has priority over what `taskplace run` sets."""
    key = "spark.shuffle.reduceLocality.enabled"
    if facts.spark.conf.get(key, "").strip().lower() == "true":
        yield Found(
            facts.spark.where(key),
            "true",
            "Spark then prefers the executors that have the shuffle's files, beside the one that has the state.",
            _set_spark(key, "false"),
        )


@rule(
    "unload-on-commit",
    Severity.ERROR,
    "state that is unloaded after each batch, beside steering",
    steered=True,
)
def unload_on_commit(facts: Facts) -> Iterator[Found]:
    """Find the property that leaves steering nothing to steer; for placed state, it has no effect."""
    key = "spark.sql.streaming.stateStore.unloadOnCommit"
    if not facts.spark.flag(key):
        return
    if facts.steered:
        why = "Spark forgets where each store is after every batch. Steering stands down at once."
    else:
        why = "Spark's own state stores are not used by placed state, so the property has no effect here."
    yield Found(
        facts.spark.where(key),
        "true",
        why,
        _set_spark(key, "false"),
        None if facts.steered else Severity.ADVICE,
    )


@rule("state-store-ignored", Severity.ADVICE, "properties of Spark's own state stores and checkpoints")
def state_store_ignored(facts: Facts) -> Iterator[Found]:
    """Find properties without effect on placed state."""
    for key in sorted({*facts.spark.conf, *facts.spark.file}):
        where = facts.spark.where(key)
        if key == "spark.sql.streaming.checkpointLocation":
            why = "The stream's progress lies in checkpoint.dir, and Spark's own part of it below."
        elif key.startswith(
            ("spark.sql.streaming.stateStore.", "spark.sql.streaming.statefulOperator.")
        ) and (not key.endswith("unloadOnCommit")):
            why = "Placed state does not use Spark's state stores, so the property has no effect on it."
        else:
            continue
        yield Found(where, facts.spark.get(key) or "", why, remove(where))


RULES = (
    locality_wait_short,
    locality_wait_ignored,
    speculation,
    adaptive_execution,
    scheduler_not_fair,
    reduce_locality,
    unload_on_commit,
    state_store_ignored,
)
