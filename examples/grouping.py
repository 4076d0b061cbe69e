"""Tasks without a topology: topics with equal partition counts form one group, so that any of them can be joined.

Run it from the repository's root:  .venv/bin/python -m examples.grouping

There is no Spark and no description of the joins: partition p of all topics with four partitions is one
task, so any two of them can be joined. The engine then places the tasks on three workers. One worker
leaves, and only its tasks move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import taskplace
from topology import Task, group_topics

TOPICS = {"orders": 4, "users": 4, "totals-changelog": 4, "clicks": 6}


def problem(
    tasks: Sequence[Task], workers: Sequence[str], running: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the engine's problem: the tasks, the workers, and what each worker runs."""
    return {
        "tasks": [{"id": str(task.id), "stateful": task.stateful, "end_offset": 100_000} for task in tasks],
        "instances": [
            {
                "id": worker,
                "active": list(running.get(worker, ())),
                "lags": {str(t.id): 0 for t in tasks if t.stateful and str(t.id) in running.get(worker, ())},
            }
            for worker in workers
        ],
    }


def main() -> int:
    """Print the groups, the tasks, and the workers that run them before and after one worker has left."""
    groups = group_topics(TOPICS, changelogs=["totals-changelog"])
    for group in groups:
        state = f", state in {', '.join(group.changelogs)}" if group.changelogs else ""
        print(f"group {group.id}: {', '.join(group.topics)}{state}")
    tasks = [task for group in groups for task in group.tasks()]
    for task in tasks[:2]:
        print(f"task {task.id}: {', '.join(f'{tp.topic}[{tp.partition}]' for tp in task.topic_partitions)}")

    running: dict[str, list[str]] = {}
    for workers in (["w1", "w2", "w3"], ["w1", "w2"]):
        plan = taskplace.plan(problem(tasks, workers, running)).to_dict()
        before, running = running, {w: roles["active"] for w, roles in plan["assignment"].items()}
        print(f"{len(workers)} workers:")
        for worker, ids in sorted(running.items()):
            came = [task for task in ids if task not in before.get(worker, ids)]
            print(f"  {worker}: {' '.join(ids)}{f'   (new: {chr(32).join(came)})' if came else ''}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
