"""Cases of the rules about state and time."""

from __future__ import annotations

from tests.support.doctor.cases import ADVICE, ENDS, Cases, fires, one_store, quiet
from tests.support.doctor.sound_application import topology

CASES: Cases = {
    "state-without-end": (
        fires("topology.nodes.once.options.ttl", says="'seen' has no ttl", stores=one_store()),
        fires("topology.nodes.once.options.ttl", severity=ADVICE, stores=one_store(), without=ENDS),
        fires("topology.nodes.once.options.ttl", severity=ADVICE, stores=one_store(processor="count")),
        fires(
            "store 'seen'",
            says="and no retention",
            severity=ADVICE,
            stores=one_store(path="store 'seen'", processor=""),
        ),
        fires("topology.nodes.once.options.ttl", severity=ADVICE, stores=one_store(processor="aggregate")),
        fires(
            "topology.nodes.once.options.ttl",
            severity=ADVICE,
            stores=one_store(processor="per-key"),
            ends=False,
        ),
        fires(
            "topology.nodes.once.options.ttl",
            stores=one_store(),
            topology=topology(12, spare="no event time"),
            ends=False,
        ),
        quiet(stores=one_store(processor="table-join")),
    ),
    "event-time-unused": (
        fires(
            "topology.sources.orders.options.event_time",
            says="'at', and no window or ttl",
            stores=one_store(processor="table-join"),
        ),
        quiet(stores=one_store(processor="table-join"), topology=topology(12, spare="no event time")),
        quiet(stores=one_store()),  # its remedy needs the event time
    ),
    "no-delay": (
        fires("topology.sources.orders.options.delay", topology=topology(12, event_time="at")),
        quiet(stores=one_store(), topology=topology(12, event_time="at")),
        quiet(topology=topology(12, event_time="at", delay="0 s")),
    ),
    "last-windows-wait": (
        fires("runtime.idle.closing", says="hours", without=("runtime.idle.closing",)),
        quiet(
            without=(
                "spark.trigger.interval",
                "runtime.idle.closing",
            )
        ),
        quiet(stores=one_store(retention_ms=5), without=("runtime.idle.closing",)),
    ),
    "snapshots-beyond-ttl": (
        fires(
            "runtime.snapshot.interval",
            "runtime.snapshot.interval=500",
            says="500 batches, 1 h 23 min, and entries that live 1 h 5 min",
        ),
        quiet("runtime.snapshot.interval=500", without=ENDS),
        quiet("runtime.snapshot.interval=390"),
    ),
    "snapshots-frequent": (
        fires("runtime.snapshot.interval", "runtime.snapshot.interval=1"),
        fires("runtime.snapshot.bytes", "runtime.snapshot.bytes=1000", says="1,000 bytes"),
        quiet("runtime.snapshot.interval=3"),
    ),
}
