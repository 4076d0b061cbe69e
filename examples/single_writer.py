"""One writer at a time: several processes can write, one is elected, and another takes over when it dies.

Run it from the repository's root:  .venv/bin/python -m examples.single_writer

There are no topics and no partitions: the group is used for membership only. The protocol below is a complete
election: the leader of a generation is the writer. Each write has its generation, and the log accepts only the
current generation. So a writer that was replaced and does not know it yet cannot write.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.local import LocalCoordinator, LocalMember
from taskplace.groups.member import MemberSettings
from taskplace.groups.messages import Joined, Mode, Offer, StaleGeneration

GROUP = "ledger"
# Short, so that the example is quick: a dead writer is noticed after two seconds.
MEMBER = MemberSettings(session_timeout_ms=2_000, heartbeat_interval_ms=100, max_poll_interval_ms=4_000)
COORDINATOR = CoordinatorSettings(group_initial_rebalance_delay_ms=100, group_min_session_timeout_ms=100)


class Election:
    """The embedded protocol: the leader writes. `accept` returns whether this member is the writer."""

    protocol_type = "single-writer"
    mode = Mode.SINGLE
    newest = 0

    def offers(self) -> list[Offer]:
        """Return the offer; an election needs no metadata."""
        return [Offer("election")]

    def lead(self, outcome: Joined) -> Mapping[str, bytes]:
        """Make the leader the writer; the others get an empty state."""
        return {name: b"write" if name == outcome.name else b"" for name in outcome.members}

    def accept(self, outcome: Joined) -> bool:
        """Return whether this member writes in this generation."""
        return outcome.state == b"write"

    def lost(self) -> None:
        """Do nothing: the log refuses writes of an old generation."""


@dataclass
class Log:
    """The log: it accepts a line only if the writer's generation is the current one."""

    coordinator: LocalCoordinator
    lines: list[tuple[int, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, member: LocalMember, generation: int, text: str) -> None:
        """Append a line; raise `StaleGeneration` for a writer of an old generation."""
        with self.lock:
            self.coordinator.fence(GROUP, member.member_id, generation)
            self.lines.append((generation, text))


def writer_of(members: list[LocalMember], after: int) -> LocalMember:
    """Wait until all members have their state of a generation later than `after`; return the writer."""
    while True:
        assigned = [
            m.wait_for(lambda owned: owned is not None and owned.generation > after, timeout=20)
            for m in members
        ]
        writers = [m for m, owned in zip(members, assigned, strict=True) if owned and owned.value]
        if len({owned.generation for owned in assigned if owned}) == 1 and len(writers) == 1:
            return writers[0]


def main() -> int:
    """Elect, write, kill the writer, write again; return 0 if the log has no line of the killed writer after that."""
    with LocalCoordinator(COORDINATOR) as coordinator:
        log = Log(coordinator)
        members = [LocalMember(coordinator, GROUP, Election(), MEMBER) for _ in range(3)]
        first = writer_of(members, after=0)
        generation = first.owned.generation if first.owned else 0
        log.append(first, generation, "opened the books")
        print(f"generation {generation}: {len(members)} members, one writer")

        first.kill()
        members.remove(first)
        second = writer_of(members, after=generation)
        newer = second.owned.generation if second.owned else 0
        log.append(second, newer, "went on")
        print(f"generation {newer}: the writer was killed, another one writes")

        try:
            log.append(first, generation, "knows nothing of it")
        except StaleGeneration as error:
            print(f"a late write of the first one is refused: {str(error).rsplit(': ', 1)[1]}")
        for member in members:
            member.leave()
    generations = [g for g, _ in log.lines]
    right = [text for _, text in log.lines] == ["opened the books", "went on"] and generations[
        0
    ] < generations[1]
    print("one writer at a time" if right else f"wrong: {log.lines}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
