"""A pool of workers shares jobs; when a worker dies, its jobs move to the others, and all other jobs stay.

Run it from the repository's root:  .venv/bin/python -m examples.worker_pool

This is the proposal's second use case, a cluster of connector workers. They share named jobs, not partitions of
topics. Each worker reports how many jobs it can run and which it runs now; the leader assigns. Because the metadata
contains the running jobs, a new leader can keep them where they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.local import LocalCoordinator, LocalMember
from taskplace.groups.member import MemberSettings
from taskplace.groups.messages import Joined, Mode, Offer

GROUP = "connectors"
JOBS = [f"job-{k}" for k in range(9)]
MEMBER = MemberSettings(session_timeout_ms=2_000, heartbeat_interval_ms=100, max_poll_interval_ms=4_000)
COORDINATOR = CoordinatorSettings(group_initial_rebalance_delay_ms=100, group_min_session_timeout_ms=100)


def share(room: Mapping[str, int], running: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the jobs of each worker: shares in proportion to room; within them, jobs stay where they run.

    >>> share({"a": 1, "b": 2}, {"b": ["job-5"]})["b"][0]
    'job-5'
    """
    total = sum(room.values())
    exact = {name: len(JOBS) * size / total for name, size in room.items()}
    count = {name: int(exact[name]) for name in room}
    # The jobs that rounding left over go to the workers that are furthest below their share.
    by_rest = sorted(room, key=lambda name: (count[name] - exact[name], name))
    for name in by_rest[: len(JOBS) - sum(count.values())]:
        count[name] += 1
    jobs = {
        name: [job for job in running.get(name, ()) if job in JOBS][: count[name]] for name in sorted(room)
    }
    free = [job for job in JOBS if not any(job in kept for kept in jobs.values())]
    for name, kept in jobs.items():
        while len(kept) < count[name]:
            kept.append(free.pop(0))
    return jobs


class Pool:
    """The embedded protocol of a worker that can run `room` jobs at a time."""

    protocol_type = "connect"
    mode = Mode.SINGLE
    newest = 0

    def __init__(self, room: int) -> None:
        self.room = room
        self.running: list[str] = []

    def offers(self) -> list[Offer]:
        """Return the offer: the room of this worker, and the jobs that it runs."""
        return [Offer("jobs", 0, json.dumps({"room": self.room, "running": self.running}).encode())]

    def lead(self, outcome: Joined) -> Mapping[str, bytes]:
        """Assign the jobs by the workers' reports."""
        said: dict[str, Any] = {name: json.loads(data) for name, data in outcome.members.items()}
        shares = share({n: s["room"] for n, s in said.items()}, {n: s["running"] for n, s in said.items()})
        return {name: json.dumps(jobs).encode() for name, jobs in shares.items()}

    def accept(self, outcome: Joined) -> list[str]:
        """Return this worker's jobs."""
        self.running = json.loads(outcome.state)
        return self.running

    def lost(self) -> None:
        """Keep the jobs: the next assignment stops them, and the next join reports them."""


def settled(workers: Sequence[LocalMember], after: int) -> list[list[str]]:
    """Wait until all workers have their jobs of one generation later than `after`; return them."""
    while True:
        assigned = [
            w.wait_for(lambda owned: owned is not None and owned.generation > after, timeout=20)
            for w in workers
        ]
        jobs = [owned.value for owned in assigned if owned]
        if len({owned.generation for owned in assigned if owned}) == 1 and sum(map(len, jobs)) == len(JOBS):
            return jobs


def main() -> int:
    """Share nine jobs among three workers, lose one, and share its jobs; return 0 if only those have moved."""
    with LocalCoordinator(COORDINATOR) as coordinator:
        workers = [LocalMember(coordinator, GROUP, Pool(room), MEMBER) for room in (1, 1, 1)]
        before = settled(workers, after=0)
        for k, jobs in enumerate(before):
            print(f"worker {k}: {' '.join(jobs)}")
        generation = coordinator.generations()[GROUP]

        workers.pop().kill()
        after = settled(workers, after=generation)
        print("worker 2 is killed:")
        for k, jobs in enumerate(after):
            came = [job for job in jobs if job not in before[k]]
            print(f"worker {k}: {' '.join(jobs)}   (new: {' '.join(came)})")
        for worker in workers:
            worker.leave()
    stayed = all(set(old) <= set(new) for old, new in zip(before, after, strict=False))
    everything = sorted(job for jobs in after for job in jobs) == sorted(JOBS)
    print(
        "only the jobs of the dead worker have moved" if stayed and everything else f"wrong: {before} {after}"
    )
    return 0 if stayed and everything else 1


if __name__ == "__main__":
    raise SystemExit(main())
