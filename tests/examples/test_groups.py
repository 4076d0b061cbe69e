"""The thread runner under the examples of groups does what it says."""

from __future__ import annotations

import threading

import pytest

from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.local import LocalCoordinator, LocalMember
from taskplace.groups.member import Assigned, Failed, MemberSettings, Revoked
from taskplace.groups.messages import GroupFailed, Mode, StaleGeneration
from taskplace.groups.metadata import Topics

QUICK = CoordinatorSettings(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100)
# Long sessions: nobody is to expire because the machine is busy.
MEMBER = MemberSettings(session_timeout_ms=30_000, heartbeat_interval_ms=30, max_poll_interval_ms=30_000)


@pytest.mark.parametrize("mode", Mode)
def test_threads_share_and_fence(mode: Mode) -> None:
    view = Topics({"t": 6})
    heard: list[object] = []
    told = threading.Lock()

    def note(what: object) -> None:
        with told:
            heard.append(what)

    def protocol() -> ConsumerProtocol:
        return ConsumerProtocol(["t"], fetch=lambda: view, mode=mode)

    with LocalCoordinator(QUICK) as coordinator:
        a = LocalMember(coordinator, "g", protocol(), MEMBER, on_change=note)
        alone = a.wait_for(lambda owned: owned is not None, timeout=20)
        assert alone is not None and len(alone.value) == 6
        coordinator.fence("g", a.member_id, alone.generation)
        b = LocalMember(coordinator, "g", protocol(), MEMBER)
        halves = [
            m.wait_for(lambda owned: owned is not None and len(owned.value) == 3, timeout=20) for m in (a, b)
        ]
        assert sorted(p.partition for half in halves if half for p in half.value) == list(range(6))
        with pytest.raises(StaleGeneration):
            coordinator.fence("g", a.member_id, alone.generation)
        b.leave()
        whole = a.wait_for(lambda owned: owned is not None and len(owned.value) == 6, timeout=20)
        assert whole is not None and whole.generation == coordinator.generations()["g"]
        a.leave()
    kinds = [type(what) for what in heard]
    assert kinds == [Assigned, Revoked] * (len(kinds) // 2) and len(kinds) >= 6


def test_the_end_of_a_membership_is_raised_where_somebody_waits() -> None:
    failed: list[object] = []
    view = Topics({"t": 1})
    with LocalCoordinator(QUICK) as coordinator:
        first = LocalMember(coordinator, "g", ConsumerProtocol(["t"], fetch=lambda: view), MEMBER)
        first.wait_for(lambda owned: owned is not None, timeout=20)
        other = LocalMember(
            coordinator,
            "g",
            ConsumerProtocol(["t"], fetch=lambda: view, mode=Mode.SINGLE),
            MEMBER,
            on_change=failed.append,
        )
        with pytest.raises(GroupFailed, match="INCONSISTENT_GROUP_PROTOCOL"):
            other.wait_for(lambda owned: owned is not None, timeout=20)
        other.kill()
        with pytest.raises(TimeoutError, match="still has"):
            first.wait_for(lambda owned: owned is not None and owned.generation > 1_000, timeout=0.01)
        first.leave()
    assert [type(effect) for effect in failed] == [Failed]
