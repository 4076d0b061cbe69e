"""Members on threads: a topic that grows is noticed on a timer, and a failing look does no harm."""

from __future__ import annotations

import threading

import pytest

from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.local import LocalCoordinator, LocalMember
from taskplace.groups.member import MemberSettings
from taskplace.groups.messages import GroupFailed
from taskplace.groups.metadata import Topics

AT_ONCE = CoordinatorSettings(group_initial_rebalance_delay_ms=0)


def test_a_topic_that_grows_is_noticed_after_metadata_max_age():
    seen = {"t": 2}
    failed, broken = threading.Event(), threading.Event()

    def fetch():
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
        member.wait_for(lambda owned: owned is not None and len(owned.value) == 3, timeout=20)
        member.leave()


def test_an_exception_of_a_callback_ends_the_membership_and_gives_its_place_away():
    def protocol():
        return ConsumerProtocol(["t"], fetch=lambda: Topics({"t": 4}))

    def refuse(_):
        raise RuntimeError("no disk")

    with LocalCoordinator(AT_ONCE) as coordinator:
        quick = MemberSettings(heartbeat_interval_ms=30)
        sound = LocalMember(coordinator, "shop", protocol(), quick)
        sound.wait_for(lambda owned: owned is not None, timeout=20)
        broken = LocalMember(coordinator, "shop", protocol(), quick, on_change=refuse)
        with pytest.raises(GroupFailed, match="on_change: RuntimeError: no disk"):
            broken.wait_for(lambda owned: False, timeout=20)
        sound.wait_for(lambda owned: owned is not None and len(owned.value) == 4, timeout=20)
        sound.leave()
