"""Members on threads: a topic that grows is noticed on a timer, and a failing look does no harm."""

from __future__ import annotations

import threading

from taskplace.group import (
    ConsumerProtocol,
    CoordinatorSettings,
    LocalCoordinator,
    LocalMember,
    MemberSettings,
    Topics,
)

AT_ONCE = CoordinatorSettings(group_initial_rebalance_delay_ms=0)


def test_a_topic_that_grows_is_noticed_after_metadata_max_age() -> None:
    seen = {"t": 2}
    failed = threading.Event()
    broken = threading.Event()

    def fetch() -> Topics:
        if broken.is_set():
            failed.set()
            raise ConnectionError("no broker")
        return Topics(dict(seen))

    with LocalCoordinator(AT_ONCE) as coordinator:
        settings = MemberSettings(metadata_max_age_ms=20)
        member = LocalMember(coordinator, "shop", ConsumerProtocol(["t"], fetch=fetch), settings)
        member.wait_for(lambda owned: owned is not None and len(owned.value) == 2, timeout=20)
        broken.set()
        assert failed.wait(20)
        assert member.error is None
        seen["t"] = 3
        broken.clear()
        got = member.wait_for(lambda owned: owned is not None and len(owned.value) == 3, timeout=20)
        member.leave()
    assert got is not None and [p.partition for p in got.value] == [0, 1, 2]
