"""How many bytes a rebalance sends to its members: full lists to all, leader only, compressed, hashed subscriptions.

    python benchmarks/bench_join_payload.py [--members 100,1000] [--topics 100]

Everything is counted as sent, frames included, by the real coordinator and members in memory: all members join,
and one rebalance is made. Each member is subscribed to the same topics, with names of about 30 bytes. "up" is
what all members send (their joins, and the leader's sync), "down" what the coordinator sends them. The last
lines give how "down" grows with the number of members, as the exponent of a power law.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

from taskplace.groups.consumer import ConsumerProtocol
from taskplace.groups.coordinator import Coordinator, CoordinatorSettings
from taskplace.groups.member import Assigned, Member, MemberSettings, Send
from taskplace.groups.messages import Mode, decode, encode
from taskplace.groups.metadata import Topics


@dataclass(frozen=True)
class Way:
    name: str
    mode: Mode
    members_compress: bool = False
    frames_compress: bool = False
    hashed: bool = False


WAYS = (
    Way("full lists to all", Mode.EVERY),
    Way("full lists, members compress", Mode.EVERY, members_compress=True),
    Way("full lists, frames compressed", Mode.EVERY, frames_compress=True),
    Way("hashed subscriptions to all", Mode.EVERY, hashed=True),
    Way("hashed, frames compressed", Mode.EVERY, frames_compress=True, hashed=True),
    Way("leader only", Mode.SINGLE),
    Way("leader only, members compress", Mode.SINGLE, members_compress=True),
    Way("leader only, frames compressed", Mode.SINGLE, frames_compress=True),
)


def measure(way: Way, members: int, topics: int) -> tuple[int, int]:
    """Return the bytes sent up and down for one rebalance."""
    view = Topics({f"warehouse.orders.events-{k:05}": 12 for k in range(topics)})
    coordinator = Coordinator(CoordinatorSettings(group_initial_rebalance_delay_ms=1_000))
    group = [
        Member(
            "warehouse-loader",
            f"{k:032x}",
            ConsumerProtocol(
                list(view.partitions),
                fetch=lambda: view,
                mode=way.mode,
                hashed=way.hashed,
                compress=way.members_compress,
            ),
            MemberSettings(),
        )
        for k in range(members)
    ]
    up = down = 0
    by_id = {member.member_id: member for member in group}
    waiting = [(m, effect) for m in group for effect in m.start(0.0)]
    replies = []
    for now in (0.5, 2.0, 2.1, 2.2):
        for member, effect in waiting:
            if isinstance(effect, Send):
                frame = encode(effect.message, compress=way.frames_compress)
                up += len(frame)
                replies += coordinator.handle(member.member_id, decode(frame), now)  # type: ignore[arg-type]
        if not replies and all(member.owned is None for member in group):
            replies = coordinator.tick(2.0)
        waiting = []
        for address, message in replies:
            down += len(encode(message, compress=way.frames_compress))
            # Accepting is the members' own business; one of them is enough to see that it works.
            if way.mode is Mode.SINGLE or address == group[0].member_id:
                waiting += [(by_id[address], e) for e in by_id[address].receive(message, 2.0)]  # type: ignore[arg-type]
        replies = []
        if any(isinstance(effect, Assigned) for _, effect in waiting):
            return up, down
    raise RuntimeError(f"{way.name}: no rebalance came about")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", default="100,1000")
    parser.add_argument("--topics", type=int, default=100)
    args = parser.parse_args()
    sizes = [int(size) for size in args.members.split(",")]
    heads = [f"{size} members: {way}" for size in sizes for way in ("up", "down")]
    print("| | " + " | ".join(heads) + " | growth of down |\n|---|" + "---|" * (len(heads) + 1))
    for way in WAYS:
        found = [measure(way, size, args.topics) for size in sizes]
        growth = (
            math.log(found[-1][1] / found[0][1]) / math.log(sizes[-1] / sizes[0]) if len(sizes) > 1 else 0
        )
        cells = [f"{count:,}" for pair in found for count in pair]
        print(f"| {way.name} | " + " | ".join(cells) + f" | {growth:.2f} |", flush=True)


if __name__ == "__main__":
    main()
