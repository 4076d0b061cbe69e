"""The errors of a group, as codes in messages and as exceptions.

TaskplaceError
└── GroupError
    ├── ProtocolError         bytes that are not a message or metadata of this protocol
    │   └── UnknownVersion    a version that is newer than the newest known one
    ├── GroupFailed           the group refused this member, or its leader could not assign: final for the member
    └── StaleGeneration       work of a generation that is not in force, or of a process that is not a member
"""

from __future__ import annotations

from enum import IntEnum

from taskplace.errors import TaskplaceError


class Code(IntEnum):
    """The outcome of a request, with Kafka's names and numbers if Kafka has the code.

    >>> Code.REBALANCE_IN_PROGRESS.value
    27
    """

    NONE = 0
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_REQUEST = 42
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    # Kafka has no codes for these.
    ASSIGNMENT_FAILED = 1001
    METADATA_DISAGREEMENT = 1002
    TOPICS_UNAVAILABLE = 1003


class GroupError(TaskplaceError):
    """The base of all errors of a group."""


class ProtocolError(GroupError):
    """Bytes that cannot be read. The message has the path, the value and the expectation.

    >>> raise ProtocolError("join.group", found="3 bytes left", expected="a string of 9 bytes")
    Traceback (most recent call last):
    taskplace.groups.messages.ProtocolError: join.group: found 3 bytes left, expected a string of 9 bytes
    """

    def __init__(self, path: str, *, found: object, expected: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        super().__init__(f"{path}: found {found}, expected {expected}")


class UnknownVersion(ProtocolError):
    """A version that is newer than the newest known one. `version` and `known` have the two numbers."""

    def __init__(self, path: str, *, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(path, found=f"version {version}", expected=f"one up to {known}")


class GroupFailed(GroupError):
    """The membership has ended, and another join would not help. `code` has the reason.

    >>> raise GroupFailed(Code.FENCED_INSTANCE_ID, "'db-1' has been taken over")
    Traceback (most recent call last):
    taskplace.groups.messages.GroupFailed: FENCED_INSTANCE_ID: 'db-1' has been taken over
    """

    def __init__(self, code: Code, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code.name}: {detail}")


class StaleGeneration(GroupError):
    """Work that must not be committed: its generation is not in force, or it does not come from a member."""
