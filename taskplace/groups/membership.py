"""Group membership: members, a coordinator and generations, as in Kafka's client-side assignment proposal.

    from taskplace.groups.membership import ConsumerProtocol, LocalCoordinator, LocalMember, Topics

The names come from `messages`, `coordinator`, `member`, `metadata`, `strategies`, `consumer`, `settings`, `local`.
The state machines have no threads and no clock. They take events and the time, and return messages and effects.
"""

from taskplace.groups.consumer import ConsumerProtocol, largest_matching
from taskplace.groups.coordinator import (
    Coordinator,
    Description,
    GroupState,
    always,
    choose_protocol,
    newest_then_latest,
)
from taskplace.groups.local import LocalCoordinator, LocalMember
from taskplace.groups.member import (
    Assigned,
    Failed,
    GroupProtocol,
    Member,
    MemberState,
    Revoked,
    Round,
    Send,
    TryAgain,
)
from taskplace.groups.messages import (
    Code,
    GroupError,
    GroupFailed,
    Mode,
    Offer,
    ProtocolError,
    StaleGeneration,
    UnknownVersion,
    decode,
    encode,
)
from taskplace.groups.metadata import Assignment, Subscription, Topics
from taskplace.groups.settings import CoordinatorSettings, MemberSettings
from taskplace.groups.strategies import (
    ConsistentHash,
    ConsumerMetadata,
    PartitionAssigner,
    RoundRobin,
    Shares,
    Strategy,
)

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
