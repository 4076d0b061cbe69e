"""The driver of `test_cut_off`, on a cluster of its own. One of its executors is cut off, and its worker goes on.

python cut_off_driver.py FOLDER
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
from kafka_streams.network import RELAYED_HOST, Network

from examples.kafka.broker import HOST, free_ports
from taskplace.spark.messages import reports_dir
from tests.support.placed_harness import SHORT_LIVED, FaultOrders, Pipeline, part_from_executor, wait_until

EXECUTORS = 3
POINT = "attempt.sealed"  # its files are written, its report is not
SECONDS = 180


def session(rpc: int, blocks: int, faults: Path) -> Any:
    """Return a session whose executors reach the driver through relays, and are lost after 10 s of silence."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.executor.memory": "900m",
        "spark.executor.heartbeatInterval": "1s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
        "spark.network.timeoutInterval": "1s",
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": RELAYED_HOST,
        "spark.driver.port": str(rpc),
        "spark.driver.blockManager.port": str(blocks),
        "spark.port.maxRetries": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.TASKPLACE_FAULTS": str(faults),
        **SHORT_LIVED,
    }
    return SparkSession.builder.master(f"local-cluster[{EXECUTORS},2,1024]").config(map=conf).getOrCreate()


class CutOff:
    """Cuts the executor off whose worker is held in an attempt. That worker is not ended with it."""

    def __init__(self, pipeline: Pipeline, orders: FaultOrders, network: Network) -> None:
        self._pipeline, self._orders, self._network = pipeline, orders, network
        self.instance: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CutOff:
        self._orders.write(POINT, "hold")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(SECONDS)

    def _run(self) -> None:
        wait_until(lambda: self._orders.held_at(POINT), "an attempt is held", SECONDS)
        worker = self._orders.held_at(POINT)
        above = {process.pid for process in psutil.Process(worker).parents()}
        members = self._pipeline.placed.state.members
        instance, pid = next((name, member.pid) for name, member in members.items() if member.pid in above)
        part_from_executor(worker)
        self._network.cut(pid)
        self.instance = instance


def main(folder: Path) -> None:
    ports = free_ports(2)
    network = Network([((RELAYED_HOST, port), (HOST, port)) for port in ports], folder / "relay.log")
    orders = FaultOrders(folder / "faults")
    orders.folder.mkdir()
    spark = session(ports[0], ports[1], orders.folder)
    spark.sparkContext.setLogLevel("FATAL")
    pipeline = Pipeline(spark, folder)
    for batch in range(2):
        pipeline.run(batch)
    pipeline.settle()
    with CutOff(pipeline, orders, network) as cut:
        pipeline.run(2)  # without the executor: it is lost by its silence
    assert cut.instance is not None
    assert cut.instance not in {view.id for view in pipeline.placed.placement()}
    assert pipeline.placed.stats.losses == 1
    pipeline.check()
    pipeline.run(3)
    reports = folder / "checkpoint" / reports_dir(2, 0)
    before = set(reports.glob("*.json"))
    orders.release(POINT)
    wait_until(lambda: set(reports.glob("*.json")) - before, "the worker has finished its attempt", SECONDS)
    pipeline.run(4)
    pipeline.check()
    network.heal()  # what the executor had sent arrives
    wait_until(
        lambda: len(pipeline.placed.bridge.executors()) == EXECUTORS, "a replacement is there", SECONDS
    )
    for batch in range(5, 8):
        pipeline.run(batch)
        pipeline.settle()
    pipeline.check()
    pipeline.check_state()
    print("losses", pipeline.placed.stats.losses, "scratch", pipeline.placed.stats.scratch, flush=True)
    spark.stop()
    network.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
