"""Requests of follow jobs, and their reports."""

from __future__ import annotations

from taskplace.spark.messages import FollowReport, FollowRequest
from taskplace.spark.worker.follow import follow_all

ROWS = [[("N1", 5), ("N7", 7), ("N3", -1)], [("N1", 9), ("N4", 1)], [("N7", 30), ("N1", 2), ("N2", 0)]]


def orders(runtime, instance="executor-2", **what):
    stores = {
        program.subtopology: tuple(sorted(program.stores)) for program in (runtime.first, runtime.second)
    }
    given = {"stores": stores, "logged": stores} | what
    return FollowRequest(instance, str(runtime.checkpoint), str(runtime.state), "app", **given)


def run_job(runtime, given, executor="2"):
    """Run a follow job on an executor as Spark does: the request and the report are sent as bytes."""
    runtime.be(executor)
    (answer,) = follow_all([bytearray(given.encode())])
    found = FollowReport.decode(answer)
    assert FollowReport.decode(found.encode()) == found
    return found
