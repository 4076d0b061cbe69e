"""Has a consumer of kafka-python end each join that it has begun.

kafka-python 3.0 joins a group within `poll`. If the timeout of a `poll` ends first, the next one goes on with the join,
but only if the consumer still needs one. A consumer that joins because of changed topics needs none as soon as its
request is sent. So it forgets the join: it owns nothing from then on, sends no heartbeats, and `poll` returns no error.
"""

from __future__ import annotations

from typing import Any

_NEEDED = ("_on_join_prepare_async", "request_rejoin")


def finish_joins(consumer: Any) -> Any:
    """Return the `KafkaConsumer` after changing it: a join that outlasts a `poll` goes on in the next one.

    Call it once, before the first `poll`. Without it, poll with timeouts that are longer than any join.

        consumer = finish_joins(KafkaConsumer(..., partition_assignment_strategy=[TaskplaceAssignor()]))

    It calls private methods of kafka-python 3.0, because the public ones do not reach a join. A consumer without a
    group stays as it is.

    Errors: `TypeError` for anything else than a `KafkaConsumer` of kafka-python 3.0.
    """
    coordinator: Any = getattr(consumer, "_coordinator", None)
    if any(not callable(getattr(coordinator, name, None)) for name in _NEEDED):
        raise TypeError(f"consumer: found {consumer!r}, expected a KafkaConsumer of kafka-python 3.0")
    prepare = coordinator._on_join_prepare_async

    async def prepare_once_needed(*args: Any, **kwargs: Any) -> None:
        # Only the end of a join takes this back, so each `poll` until then goes on with it.
        coordinator.request_rejoin()
        await prepare(*args, **kwargs)

    coordinator._on_join_prepare_async = prepare_once_needed
    return consumer
