"""How long moves take: warm-ups, the probing interval, the acceptable lag."""

from __future__ import annotations

import math
from collections.abc import Iterator

from taskplace.doctor.facts import Facts
from taskplace.doctor.findings import Found, Severity, rule, set_key
from taskplace.durations import milliseconds
from taskplace.wording import count, lasting

#: From how many seconds on it is worth a word, or a warning, that all copies move.
LONG, TOO_LONG = 3600, 4 * 3600
#: The most warm-ups that a remedy proposes. Each takes bandwidth and a part of `runtime.follower.share`.
MOST_WARMUPS = 64
_WARMUPS = "placement.max.warmup.replicas"
_PROBING = "placement.probing.rebalance.interval.ms"
_LAG = "placement.acceptable.recovery.lag"
#: What an unbounded lag leaves without effect.
_OF_WARMUPS = (_WARMUPS, _PROBING, "placement.acceptable.recovery.seconds")


@rule(
    "warm-ups-slow",
    Severity.WARNING,
    "the time in which all copies can move, at `max.warmup.replicas` per `probing.rebalance.interval.ms`",
    needs=("topology",),
)
def warm_ups_slow(facts: Facts) -> Iterator[Found]:
    """Compare the longest time in which all copies move with an hour."""
    config, tasks = facts.settings.placement, facts.stateful_tasks
    if config.unbounded or facts.spark.executors.most == 1:  # nothing warms up
        return
    standbys, warmups = config.num_standby_replicas, config.max_warmup_replicas
    interval = config.probing_rebalance_interval_ms / 1000
    copies = tasks * (1 + standbys)
    rounds = math.ceil(copies / warmups)
    seconds = rounds * interval
    if seconds <= LONG or rounds < 2:
        return
    copied = (
        f"{tasks} tasks"
        if not standbys
        else f"{tasks} tasks with {count(standbys, 'standby')}, {copies} copies,"
    )
    raised = max(warmups, min(MOST_WARMUPS, math.ceil(copies * interval / LONG)))
    remedy = set_key(_WARMUPS, raised)
    if (shorter := int(1000 * LONG / math.ceil(copies / raised))) < 1000 * interval:
        remedy += f" {set_key(_PROBING, max(1000, shorter))}"
    yield Found(
        _WARMUPS,
        f"{warmups} warm-ups per {lasting(interval)}: {copied} need {lasting(seconds)}",
        "That is how long it may take until all copies have moved to new executors. A round also ends when its "
        "warm-ups have caught up, so it is less where restores are fast.",
        remedy,
        None if seconds > TOO_LONG else Severity.ADVICE,
    )


@rule(
    "warm-ups-ignored",
    Severity.WARNING,
    "keys of warm-ups beside an `acceptable.recovery.lag` that accepts every copy",
)
def warm_ups_ignored(facts: Facts) -> Iterator[Found]:
    """Find keys that have no effect, because nothing warms up."""
    if facts.settings.placement.unbounded:
        for path in sorted(facts.written.intersection(_OF_WARMUPS)):
            yield Found(
                path,
                f"a key without effect beside {_LAG} = {facts.settings.placement.acceptable_recovery_lag}",
                "With this lag every executor counts as caught up, even without a copy: tasks move at once, nothing "
                "warms up, and each move restores within a batch.",
                set_key(_LAG, 10_000),
            )


@rule(
    "probing-within-a-batch",
    Severity.ADVICE,
    "a probing interval that is shorter than the time between two batches",
)
def probing_within_a_batch(facts: Facts) -> Iterator[Found]:
    """Compare the probing interval with the trigger's."""
    if (trigger := facts.settings.spark.trigger_interval) is None:
        return
    between, probing = (
        milliseconds(trigger, "spark.trigger.interval"),
        facts.settings.placement.probing_rebalance_interval_ms,
    )
    if probing < between and _PROBING in facts.written:
        yield Found(
            _PROBING,
            f"{probing} ms, and a batch every {between} ms",
            "Plans are made between two batches, so a probing rebalance cannot come more often than a batch.",
            set_key(_PROBING, between),
        )


@rule(
    "lag-covers-empty-copies",
    Severity.WARNING,
    "an `acceptable.recovery.lag` so large that an empty copy counts as caught up",
    needs=("checkpoint",),
)
def lag_covers_empty_copies(facts: Facts) -> Iterator[Found]:
    """Compare the acceptable lag with the longest changelog of the checkpoint."""
    lag, checkpoint = facts.settings.placement.acceptable_recovery_lag, facts.checkpoint
    if checkpoint is None or facts.settings.placement.unbounded or not 0 < checkpoint.records <= lag:
        return
    yield Found(
        _LAG,
        f"{lag:,} records, and the longest changelog of a task has {checkpoint.records:,}",
        "So a copy that has only begun counts as caught up. Tasks move to it at once, and restore within a batch "
        "instead of before it.",
        set_key(_LAG, max(1, checkpoint.records // 100)),
        Severity.ADVICE if checkpoint.records <= 10_000 else None,  # such a restore is short
    )


@rule(
    "lag-zero",
    Severity.ADVICE,
    "an `acceptable.recovery.lag` of 0 for standbys of a stream that goes on",
)
def lag_zero(facts: Facts) -> Iterator[Found]:
    """Find a lag of 0 without an acceptable time."""
    config = facts.settings.placement
    exact = config.acceptable_recovery_lag == 0 and config.acceptable_recovery_seconds is None
    if exact and facts.goes_on and config.num_standby_replicas:
        yield Found(
            _LAG,
            "0 records",
            "A copy that lacks a single record is not caught up, so moves wait for it, and promotions may choose a "
            "busier executor. A time lets a copy count as caught up that needs a moment only.",
            set_key("placement.acceptable.recovery.seconds", 1),
        )


@rule(
    "clean-up-before-probing",
    Severity.ADVICE,
    "copies without a role that are removed before the next plan could use them",
)
def clean_up_before_probing(facts: Facts) -> Iterator[Found]:
    """Compare the clean-up delay with the probing interval."""
    config, path = facts.settings.placement, "placement.state.cleanup.delay.ms"
    if path in facts.written and config.state_cleanup_delay_ms < config.probing_rebalance_interval_ms:
        yield Found(
            path,
            f"{config.state_cleanup_delay_ms} ms, and a probing interval of {config.probing_rebalance_interval_ms} ms",
            "A copy that a probing rebalance would use again may be removed before it. Then it is restored once more.",
            set_key(path, max(600_000, config.probing_rebalance_interval_ms)),
        )


RULES = (
    warm_ups_slow,
    warm_ups_ignored,
    probing_within_a_batch,
    lag_covers_empty_copies,
    lag_zero,
    clean_up_before_probing,
)
