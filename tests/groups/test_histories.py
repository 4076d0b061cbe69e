"""Random histories of a group on a bad network: what the protocol promises holds after every event."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import note, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.member import MemberSettings
from taskplace.groups.messages import Mode
from taskplace.groups.metadata import Topics
from taskplace.groups.strategies import ConsistentHash, RoundRobin
from tests.support.network import SETTINGS, Network, Weather
from topology import TopicPartition


class GroupHistory(RuleBasedStateMachine):
    """Members come, go, crash, restart, are cut off; topics grow; the coordinator is replaced."""

    mode = Mode.EVERY

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed):
        note(f"network seed {seed}")
        self.network = Network(seed)
        self.view = {"t": 4, "u": 2}
        self.grown = [4]
        self.made = 0
        self.static = 0

    def protocol(self) -> ConsumerProtocol:
        assigners = (RoundRobin(),) if self.made % 3 else (RoundRobin(), ConsistentHash())
        topics = ["t", "u"] if self.made % 4 else ["t"]
        return ConsumerProtocol(
            topics, fetch=lambda: Topics(dict(self.view)), assigners=assigners, mode=self.mode
        )

    @rule(static=st.booleans())
    def join(self, static):
        if len(self.network.members) >= 6:
            return
        self.made += 1
        own = SETTINGS
        if static:
            self.static += 1
            own = MemberSettings(
                session_timeout_ms=10_000,
                heartbeat_interval_ms=1_500,
                max_poll_interval_ms=15_000,
                group_instance_id=f"static-{self.static}",
            )
        self.network.join(f"m{self.made:02}", self.protocol(), own)

    def views(self, wanted: set[str]) -> list[list[TopicPartition]]:
        """Return what a leader may have seen: t has grown step by step, and the leader may be gone again."""
        return [
            sorted(TopicPartition(t, p) for t in wanted for p in range(grown if t == "t" else self.view[t]))
            for grown in self.grown
        ]

    def some(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.network.members)))

    @precondition(lambda self: self.network.members)
    @rule(data=st.data())
    def leave(self, data):
        self.network.leave(self.some(data))

    @precondition(lambda self: self.network.members)
    @rule(data=st.data())
    def crash(self, data):
        self.network.crash(self.some(data))

    @precondition(lambda self: self.network.members)
    @rule(data=st.data())
    def restart(self, data):
        """A crash, and the same instance id again under another member id, before the session has ended.

        A process takes a moment to start: by then, nothing of its former life is on its way any more. (The last one to
        join under an instance id wins, and that should not be a ghost.)
        """
        old = self.some(data)
        own = self.network.members[old].settings
        self.network.crash(old)
        self.network.run(self.network.in_flight() + 0.001)
        self.made += 1
        self.network.join(f"m{self.made:02}", self.protocol(), own)

    @precondition(lambda self: self.network.members)
    @rule(data=st.data())
    def cut_off(self, data):
        self.network.cut.add(self.some(data))

    @rule()
    def mend(self):
        self.network.cut.clear()

    @precondition(lambda self: self.network.members)
    @rule(data=st.data(), more=st.integers(1, 3))
    def topic_grows(self, data, more):
        """One member notices, the others do not know yet."""
        self.view["t"] += more
        self.grown.append(self.view["t"])
        name = self.some(data)
        if self.network.members[name].protocol.refresh():
            self.network.rejoin(name)

    @rule(delay=st.floats(0.01, 6.0), loss=st.floats(0.0, 0.4), double=st.floats(0.0, 0.5))
    def weather(self, delay, loss, double):
        self.network.weather = Weather(delay, loss, double)

    @rule(seconds=st.floats(0.001, 30.0))
    def wait(self, seconds):
        self.network.run(seconds)

    @rule()
    def another_coordinator(self):
        self.network.replace_coordinator(remembers=True)

    @rule()
    def quiet(self):
        """The group becomes stable, and every partition of every topic that somebody wants has its owner.

        What there is, is what members see: growth that nobody alive has noticed does not count. In the mode EVERY all
        see the same; in the mode SINGLE the view that counts is that of the leader when it assigned.
        """
        self.network.settle()
        assert not self.network.failures(), self.network.tail()
        members = self.network.members
        owned = sorted(p for parts in self.network.owned().values() for p in parts)
        wanted = {t for m in members.values() for t in m.protocol.topics}
        seen = {
            name: sorted(TopicPartition(t, p) for t in wanted for p in range(m.protocol.view.partitions[t]))
            for name, m in members.items()
        }
        if self.mode is Mode.SINGLE:
            assert not members or self.network.leader
            assert not members or owned in self.views(wanted), self.network.tail()
        else:
            assert all(owned == found for found in seen.values()), self.network.tail()

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.quiet()


class LedHistory(GroupHistory):
    mode = Mode.SINGLE


QUICK = settings(max_examples=25, stateful_step_count=25, deadline=None, print_blob=True)
LONG = settings(max_examples=300, stateful_step_count=40, deadline=None, print_blob=True)

TestEveryMember = GroupHistory.TestCase
TestEveryMember.settings = QUICK
TestSingleMember = LedHistory.TestCase
TestSingleMember.settings = QUICK


@pytest.mark.slow
class TestEveryMemberLong(GroupHistory.TestCase):
    settings = LONG


@pytest.mark.slow
class TestSingleMemberLong(LedHistory.TestCase):
    settings = LONG


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("seed", range(4))
def test_a_group_lives_through_a_bad_network(mode, seed):
    """Losses, doubles and delays all the time; a member joins, crashes or leaves every few seconds."""
    print(f"seed {seed}")
    network = Network(seed, weather=Weather(delay=2.0, loss=0.2, double=0.2))
    view = Topics({"t": 9})
    for k in range(30):
        network.join(f"m{k}", ConsumerProtocol(["t"], fetch=lambda: view, mode=mode))
        network.run(network.random.uniform(0.1, 12.0))
        if len(network.members) > 5:
            gone = network.random.choice(sorted(network.members))
            network.random.choice([network.crash, network.leave])(gone)
    network.settle()
    assert sorted(p for parts in network.owned().values() for p in parts) == [
        TopicPartition("t", p) for p in range(9)
    ]
