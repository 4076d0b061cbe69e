"""Cases of the rules about moves, lags, standbys and racks."""

from __future__ import annotations

from tests.support.doctor.cases import (
    ADVICE,
    DYNAMIC,
    ENDS,
    NO_LIMIT,
    Cases,
    fires,
    quiet,
    spark,
    with_checkpoint,
)
from tests.support.doctor.sound_application import topology

_SLOW = ("placement.max.warmup.replicas=2", "placement.probing.rebalance.interval.ms=600000")

CASES: Cases = {
    "warm-ups-slow": (
        fires(
            "placement.max.warmup.replicas",
            *_SLOW,
            "placement.num.standby.replicas=0",
            says="2 warm-ups per 10 min: 96 tasks need 8 h",
            topology=topology(96),
        ),
        fires(
            "placement.max.warmup.replicas",
            *_SLOW,
            says="12 tasks with 1 standby, 24 copies, need 2 h",
            severity=ADVICE,
        ),
        fires("placement.max.warmup.replicas", *_SLOW, says="2000 tasks", topology=topology(2000)),
        fires(
            "placement.max.warmup.replicas",
            "placement.probing.rebalance.interval.ms=7200000",
            says="per 2 h",
        ),
        quiet(*_SLOW, "spark.master=local[4]"),
        quiet(*_SLOW, NO_LIMIT, topology=topology(96)),
        quiet(*_SLOW, topology=topology(6)),
    ),
    "warm-ups-ignored": (
        fires("placement.max.warmup.replicas", NO_LIMIT),
        fires("placement.probing.rebalance.interval.ms", NO_LIMIT),
        fires("placement.acceptable.recovery.seconds", NO_LIMIT, "placement.acceptable.recovery.seconds=5"),
        quiet(NO_LIMIT, written=frozenset()),
    ),
    "probing-within-a-batch": (
        fires(
            "placement.probing.rebalance.interval.ms",
            "placement.probing.rebalance.interval.ms=2000",
            says="2000 ms, and a batch every 10000 ms",
        ),
        quiet("placement.probing.rebalance.interval.ms=2000", without=ENDS),
    ),
    "lag-covers-empty-copies": (
        fires(
            "placement.acceptable.recovery.lag",
            "placement.acceptable.recovery.lag=5000000",
            says="5,000,000 records",
        ),
        fires(
            "placement.acceptable.recovery.lag",
            says="has 900",
            severity=ADVICE,
            **with_checkpoint(records=900),
        ),
        quiet(**with_checkpoint(records=0)),
        quiet("placement.acceptable.recovery.lag=0", **with_checkpoint(records=900)),
        quiet(NO_LIMIT),
    ),
    "lag-zero": (
        fires("placement.acceptable.recovery.lag", "placement.acceptable.recovery.lag=0"),
        quiet("placement.acceptable.recovery.lag=0", without=ENDS),
        quiet("placement.acceptable.recovery.lag=0", "placement.num.standby.replicas=0"),
    ),
    "clean-up-before-probing": (
        fires("placement.state.cleanup.delay.ms", "placement.state.cleanup.delay.ms=1000", says="1000 ms"),
    ),
    "standbys-without-executors": (
        fires(
            "placement.num.standby.replicas", "placement.num.standby.replicas=3", says="at most 3 executors"
        ),
        fires("placement.num.standby.replicas", "spark.master=local[4]", says="at most 1 executor"),
        fires(
            "placement.num.standby.replicas",
            *DYNAMIC,
            spark("spark.dynamicAllocation.maxExecutors", 1),
            says="at most 1 executor",
        ),
        quiet("placement.num.standby.replicas=2"),
        quiet("placement.num.standby.replicas=0", "spark.master=local"),
        quiet("placement.num.standby.replicas=9", *DYNAMIC),
    ),
    "no-standbys": (
        fires("placement.num.standby.replicas", "placement.num.standby.replicas=0"),
        quiet("placement.num.standby.replicas=0", without=ENDS),
        quiet("placement.num.standby.replicas=0", "spark.master=local[*]"),
    ),
    "follower-share": (
        fires("runtime.follower.share", "runtime.follower.share=0.9", says="0.9 of the slots"),
        fires("runtime.follower.share", "runtime.follower.share=0.01"),
        quiet("runtime.follower.share=0.01", "placement.num.standby.replicas=0"),
        quiet("runtime.follower.share=0.5"),
    ),
    "tag-without-values": (
        fires(
            "placement.rack.aware.assignment.tags",
            "placement.rack.aware.assignment.tags=[zone, rack]",
            says="rack",
        ),
        fires("placement.rack.aware.assignment.tags", "runtime.tags={}", says="zone"),
        quiet("placement.rack.aware.assignment.tags=[host]", "runtime.tags={}"),
    ),
    "tag-values-too-few": (
        fires("runtime.tags", "placement.num.standby.replicas=2", says="2 values of 'zone', and 3 copies"),
    ),
    "tags-ignored": (
        fires("runtime.tags", "placement.rack.aware.assignment.tags=[]"),
        fires("placement.rack.aware.assignment.tags", "placement.num.standby.replicas=0"),
        quiet("placement.rack.aware.assignment.tags=[]", "runtime.tags={}"),
    ),
    "rack-costs-ignored": (
        fires(
            "placement.rack.aware.assignment.traffic_cost", "placement.rack.aware.assignment.traffic_cost=5"
        ),
        fires(
            "placement.rack.aware.assignment.non_overlap_cost",
            "placement.rack.aware.assignment.non_overlap_cost=5",
        ),
        quiet(
            "placement.rack.aware.assignment.traffic_cost=5",
            "placement.rack.aware.assignment.strategy=min_traffic",
        ),
    ),
    "assignor-ignores-weights": (
        fires("runtime.weights", "placement.task.assignor.class=sticky"),
        quiet("placement.task.assignor.class=sticky", "runtime.weights={}"),
        quiet("placement.task.assignor.class=shop:Own"),
    ),
    "balance-factor-ignored": (fires("placement.balance.factor", "placement.balance.factor=2", says="2"),),
}
