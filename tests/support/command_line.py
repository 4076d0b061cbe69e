"""Problems and an application for the command line, and a check for errors of one line."""

STABLE = {
    "schema": "taskplace.problem/1",
    "tasks": [{"id": "0_0"}, {"id": "0_1"}],
    "instances": [
        {"id": "a", "active": ["0_0"], "lags": {"0_0": 0}},
        {"id": "b", "active": ["0_1"], "lags": {"0_1": 0}},
    ],
}
UNBALANCED = {
    "tasks": [{"id": "0_0", "end_offset": 50_000}, {"id": "0_1", "end_offset": 50_000}],
    "instances": [{"id": "a", "active": ["0_0", "0_1"], "lags": {"0_0": 0, "0_1": 0}}, {"id": "b"}],
}
APPLICATION = """
from taskplace.record.events import CheckResult
from topology import Topology


class Shop:
    def __init__(self, settings):
        self.settings = settings

    def topology(self):
        topo = Topology("shop")
        orders = topo.source("orders", key=["id"], partitions=4)
        orders.process(lambda context, rows: rows, name="clean").sink("clean-orders")
        return topo

    def sources(self, spark):
        return {}

    def prepare(self):
        pass

    def check(self, spark):
        return CheckResult(True, "right")


class Broken(Shop):
    def topology(self):
        topo = Topology("shop")
        left = topo.source("orders", key=["id"], partitions=4)
        left.join_table(topo.source("items", key=["id"], partitions=5), name="joined").sink("out")
        return topo


class Waiting(Shop):
    def topology(self):
        topo = Topology("shop")
        topo.source("orders", key=["id"]).process(lambda context, rows: rows, name="clean").sink("out")
        return topo


class Twice(Shop):
    def topology(self):
        topo = Topology("shop")
        topo.source("orders", partitions=4).sink("out")
        topo.source("orders", partitions=4, name="again").sink("too")
        return topo


class Half:
    def topology(self): ...


class Bare(Shop):
    def __init__(self): ...


class Checks(Shop):
    def check(self): ...


lonely = 3
"""


def one_line(capsys):
    err = capsys.readouterr().err
    assert err.startswith("taskplace: ")
    assert err.count("\n") == 1
    return err
