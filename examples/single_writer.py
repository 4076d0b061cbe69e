"""One writer at a time: several processes could write, one is elected, another takes over when it dies.

Run it from the repository's root:  .venv/bin/python -m examples.single_writer

No topics and no partitions: the group is used for membership alone. The protocol below is all there is to an
election: the leader of a generation is the writer. Writes carry the generation, and the log takes those of the
generation in force only, so a writer that was replaced and does not know it yet cannot do harm.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from taskplace.group import (
    CoordinatorSettings,
    LocalCoordinator,
    LocalMember,
    MemberSettings,
    Mode,
    Offer,
    Round,
    StaleGeneration,
)

GROUP = "ledger"
# Short, for the example to be quick: a dead writer is noticed after two seconds.
MEMBER = MemberSettings(session_timeout_ms=2_000, heartbeat_interval_ms=100, max_poll_interval_ms=4_000)
COORDINATOR = CoordinatorSettings(group_initial_rebalance_delay_ms=100, group_min_session_timeout_ms=100)


class Election:
    """The embedded protocol: who leads, writes. `accept` returns whether it is this member."""

    protocol_type = "single-writer"
    mode = Mode.SINGLE
    newest = 0

    def offers(self) -> list[Offer]:
        """There is nothing to say but that one is there."""
        return [Offer("election")]

    def lead(self, outcome: Round) -> Mapping[str, bytes]:
        """The leader keeps the pen; the others get nothing."""
        return {name: b"write" if name == outcome.name else b"" for name in outcome.members}

    def accept(self, outcome: Round) -> bool:
        """Return whether this member writes in this generation."""
        return outcome.state == b"write"

    def lost(self) -> None:
        """Writing stops with the generation; the log sees to it."""


@dataclass
class Log:
    """What is written to: it lets a line in only if the writer's generation is in force."""

    coordinator: LocalCoordinator
    lines: list[tuple[int, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, member: LocalMember, generation: int, text: str) -> None:
        """Append a line; raise `StaleGeneration` for a writer of the past."""
        with self.lock:
            self.coordinator.fence(GROUP, member.member_id, generation)
            self.lines.append((generation, text))


def writer_of(members: list[LocalMember], after: int) -> LocalMember:
    """Wait until all members know their part in a generation later than `after`; return the one that writes."""
    while True:
        assigned = [
            m.wait_for(lambda owned: owned is not None and owned.generation > after, timeout=20)
            for m in members
        ]
        writers = [m for m, owned in zip(members, assigned, strict=True) if owned and owned.value]
        if len({owned.generation for owned in assigned if owned}) == 1 and len(writers) == 1:
            return writers[0]


def main() -> int:
    """Elect, write, kill the writer, write on; return 0 if one wrote at a time and nothing of the dead one got in."""
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
