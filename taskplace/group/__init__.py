"""Group membership: members, a coordinator and generations, as in Kafka's client-side assignment proposal.

    from taskplace.group import ConsumerProtocol, LocalCoordinator, LocalMember, Topics

Reading order: `messages`, `choice` (protocol, leader, sub-group), `state`, `phases` and `group` (the coordinator's
side), `coordinator` (many groups), `protocol` and `member` (the member's side). Consumers add `topics`, `pattern`,
`subscription`, `assigner`, `consistent`, `strategies` and `consumer`. `local` runs groups on threads, and `wire`
encodes bytes.

The state machines have no threads and no clock. They take events and the time, and return messages and effects.
"""

from taskplace.group.assigner import ConsumerMetadata, PartitionAssigner, RoundRobin, Shares
from taskplace.group.choice import always, choose_protocol, largest_matching, newest_then_latest
from taskplace.group.consistent import ConsistentHash
from taskplace.group.consumer import ConsumerProtocol
from taskplace.group.coordinator import Coordinator
from taskplace.group.errors import (
    Code,
    GroupError,
    GroupFailed,
    ProtocolError,
    StaleGeneration,
    UnknownVersion,
)
from taskplace.group.local import LocalCoordinator, LocalMember
from taskplace.group.member import Member, MemberState
from taskplace.group.messages import Mode, Offer, decode, encode
from taskplace.group.protocol import Assigned, Failed, GroupProtocol, Revoked, Round, Send, TryAgain
from taskplace.group.settings import CoordinatorSettings, MemberSettings
from taskplace.group.state import Description, GroupState
from taskplace.group.strategies import Strategy
from taskplace.group.subscription import Assignment, Subscription
from taskplace.group.topics import Topics

__all__ = [
    "Assigned",
    "Assignment",
    "Code",
    "ConsistentHash",
    "ConsumerMetadata",
    "ConsumerProtocol",
    "Coordinator",
    "CoordinatorSettings",
    "Description",
    "Failed",
    "GroupError",
    "GroupFailed",
    "GroupProtocol",
    "GroupState",
    "LocalCoordinator",
    "LocalMember",
    "Member",
    "MemberSettings",
    "MemberState",
    "Mode",
    "Offer",
    "PartitionAssigner",
    "ProtocolError",
    "Revoked",
    "Round",
    "RoundRobin",
    "Send",
    "Shares",
    "StaleGeneration",
    "Strategy",
    "Subscription",
    "Topics",
    "TryAgain",
    "UnknownVersion",
    "always",
    "choose_protocol",
    "decode",
    "encode",
    "largest_matching",
    "newest_then_latest",
]
