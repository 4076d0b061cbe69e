"""Our assignor in aiokafka's interface, without a broker: messages, the numbers of assignments, what is refused."""

from __future__ import annotations

import pytest

pytest.importorskip("aiokafka")

from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyAssignorUserDataV1,
    StickyPartitionAssignor,
)
from aiokafka.coordinator.protocol import ConsumerProtocol, ConsumerProtocolMemberAssignment

from taskplace.errors import InputError
from taskplace.groups.aiokafka import TaskplaceAssignor


class Cluster:
    """Metadata of a topic `t`, of which partition 0 is not known, and of nothing else."""

    def __init__(self, partitions: int = 6) -> None:
        self.partitions = set(range(1, partitions + 1))

    def partitions_for_topic(self, topic):
        return set(self.partitions) if topic == "t" else None


class Group:
    """Consumers, whose messages pass as bytes."""

    def __init__(self, **more) -> None:
        self.cluster, self.members = Cluster(), {}
        self.more = {name: data.encode() for name, data in more.items()}

    def join(self, *names):
        self.members |= {name: TaskplaceAssignor() for name in names}
        return self

    def rebalance(self):
        """Let the first member lead; return what each one has."""
        sent = {name: member.metadata({"t", "unknown"}).encode() for name, member in self.members.items()}
        sent |= self.more
        received = {name: ConsumerProtocol.METADATA.decode(data) for name, data in sent.items()}
        leader = next(iter(self.members.values()))
        sent = {name: each.encode() for name, each in leader.assign(self.cluster, received).items()}
        made = {name: ConsumerProtocol.ASSIGNMENT.decode(data) for name, data in sent.items()}
        for name, member in self.members.items():
            member.on_assignment(made[name])
        return {name: {tp.partition for tp in each.partitions()} for name, each in made.items()}


def test_partitions_stay_where_they_are_when_members_come_and_go():
    group = Group().join("a", "b")
    two = group.rebalance()
    assert sorted(map(len, two.values())) == [3, 3] and set.union(*two.values()) == group.cluster.partitions
    three = group.join("c").rebalance()
    assert all(len(held) == 2 for held in three.values())
    assert three["a"] < two["a"] and three["b"] < two["b"]
    del group.members["a"]
    left = group.rebalance()
    assert three["b"] < left["b"] and three["c"] < left["c"] and left.keys() == {"b", "c"}


def test_of_two_that_claim_a_partition_the_later_number_has_it():
    old, new = (
        ConsumerProtocol.METADATA(0, ["t"], StickyAssignorUserDataV1([("t", [1, 2, 3])], number).encode())
        for number in (5, 6)
    )
    group = Group(old=old, new=new)
    held = group.join("leader").rebalance()
    assert len(held["new"]) == 2 and held["new"] < {1, 2, 3}
    again = Group(old=new, new=old).join("leader").rebalance()
    assert again["old"] == held["new"] and again["leader"] == held["leader"]


def test_numbers_go_on_from_the_highest_that_a_member_sends():
    remembered = StickyAssignorUserDataV1([("t", [1, 2])], 7).encode()
    for user_data in (remembered, b"\x00\x01" + remembered):  # Java's form, and kafka-python's
        theirs = ConsumerProtocol.METADATA(3, ["t"], user_data)
        group = Group(other=theirs).join("a", "b")
        assert group.rebalance()["other"] == {1, 2}
        sent = group.members["a"].metadata(["t"]).user_data
        assert StickyAssignorUserDataV1.decode(sent).generation == 8


@pytest.mark.parametrize("user_data", [b"", None, b"\x00", b"\xff" * 9, b"\x00\x00\x00\x01" * 5])
def test_unreadable_user_data_counts_as_none(user_data):
    group = Group(other=ConsumerProtocol.METADATA(0, ["t"], user_data)).join("a")
    held = group.rebalance()
    assert len(held["a"]) == len(held["other"]) == 3
    assert StickyAssignorUserDataV1.decode(group.members["a"].metadata(["t"]).user_data).generation == 0


def test_partitions_of_aiokafkas_own_sticky_consumers_stay():
    class Theirs(StickyPartitionAssignor):  # it keeps its partitions in the class
        pass

    Theirs.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [2, 4, 6])], b""))
    group = Group(other=Theirs.metadata(["t"])).join("a")
    assert group.rebalance() == {"a": {1, 3, 5}, "other": {2, 4, 6}}


def test_an_assignment_of_another_sticky_leader_has_no_number():
    assignor = TaskplaceAssignor()
    for data in (b"", None, b"other"):
        assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [1])], data))
        sent = StickyAssignorUserDataV1.decode(assignor.metadata(["t"]).user_data)
        assert (sent.previous_assignment, sent.generation) == ([("t", [1])], -1)


def test_an_assignment_of_the_broker_is_an_error_where_only_ours_can_lead():
    assignor = TaskplaceAssignor("fair")
    for data in (b"taskplace", b"taskplace\x00\x00\x00\x01"):  # kafka-python's leader sends the mark alone
        assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [1])], data))
    with pytest.raises(InputError, match="no TaskplaceAssignor has made"):
        assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [("t", [1])], b""))


def test_cooperative_modes_are_refused():
    with pytest.raises(InputError, match="expected a mode of eager consumers"):
        TaskplaceAssignor("cooperative")
