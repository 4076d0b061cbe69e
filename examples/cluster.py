"""Runs the flights job on a cluster of three hosts, and kills one host on the way: `make run-cluster`.

The hosts are on this machine. Each has an address of its own, a Spark Worker, and where mount namespaces may be made
(Linux, as root), a local disk that the others do not see. Otherwise they share one directory, and the output says so.
The workers' Python has no packages: `taskplace pack` and the keys `spark.environment` and `spark.py.files` send them
what they need. The checkpoint is on a disk that all hosts see.

The job is `conf/flights.yaml`, unchanged but for the cluster. After some batches one host gets SIGKILL: its Worker, its
executors and their Python workers. Standbys on the other hosts take over, and the job's own check compares the result.

Exit code: that of the job; 1 if the job ended before the host was killed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyspark

from taskplace.cli import main as taskplace

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "var" / "cluster"
STATE = HOME / "state"  # of each host its own, where that is possible
MASTER = "127.0.0.10"
START_SECONDS = 90
POLL_SECONDS = 0.2
CORES = 2
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # starts fast
_DIES_WITH_THIS = ("setpriv", "--pdeathsig", "KILL", "--")


class Cluster:
    """A Master and its Workers, each on an address of its own. As a context manager, it ends all of them."""

    def __init__(self, hosts: int, executors: int, python: Path) -> None:
        self.addresses = [f"127.0.0.{11 + number}" for number in range(hosts)]
        self.own_disks = _works("unshare", "--mount", "true")
        self.url = f"spark://{MASTER}:7077"
        self._executors, self._python = executors, python
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        try:
            master = f"org.apache.spark.deploy.master.Master --host {MASTER} --port 7077 --webui-port 0"
            self._start(MASTER, master)
            self._wait("Starting Spark master")
            for address in self.addresses:
                worker = f"org.apache.spark.deploy.worker.Worker --host {address} --webui-port 0"
                memory = f"--cores {CORES * self._executors} --memory {self._executors}g"
                self._start(address, f"{worker} {memory} --work-dir {HOME / address} {self.url}")
            self._wait("Registering worker", len(self.addresses))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for address in list(self._processes):
            self.kill(address)

    def kill(self, address: str) -> int:
        """Kill all processes of a host at once, and return their number."""
        process = self._processes.pop(address)
        root = psutil.Process(process.pid)
        tree = [root, *root.children(recursive=True)] if process.poll() is None else []
        for each in tree:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        return len(tree)

    def _start(self, address: str, command: str) -> None:
        run = f"exec {Path(pyspark.__file__).parent}/bin/spark-class {command}"
        words = [*_DIES_WITH_THIS, "bash", "-c", run]
        if self.own_disks and address != MASTER:
            disk = HOME / "disks" / address
            disk.mkdir(parents=True)
            mount = f"mount --bind {disk} {STATE} && {run}"
            words = [*_DIES_WITH_THIS, "unshare", "--mount", "bash", "-c", mount]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        } | {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _JVM,
            "PYSPARK_PYTHON": str(self._python),
        }
        with (HOME / f"{address}.log").open("wb") as log:
            self._processes[address] = subprocess.Popen(
                words, cwd=HOME, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    def _wait(self, text: str, times: int = 1) -> None:
        log, deadline = HOME / f"{MASTER}.log", time.monotonic() + START_SECONDS
        while log.read_text().count(text) < times:
            if time.monotonic() > deadline or any(
                each.poll() is not None for each in self._processes.values()
            ):
                raise SystemExit(f"The cluster did not start within {START_SECONDS} s; see {HOME}/*.log.")
            time.sleep(POLL_SECONDS)


def _works(*command: str) -> bool:
    return (
        shutil.which(command[0]) is not None and not subprocess.run(command, capture_output=True).returncode
    )


def overrides(cluster: Cluster, executors: int, environment: Path) -> dict[str, object]:
    """Return what is different from the job on one host."""
    total = len(cluster.addresses) * executors
    return {
        "application.id": "cluster",  # its checkpoint is below HOME
        "chaos": "[]",
        "state.dir": STATE,
        "spark.master": cluster.url,
        "spark.environment": environment,
        "spark.py.files": f"[{ROOT / 'examples'}]",
        "spark.conf.spark.executorEnv.PYTHONPATH": "''",  # nothing comes from this checkout
        "spark.conf.spark.driver.host": MASTER,
        "spark.conf.spark.driver.bindAddress": MASTER,
        "spark.conf.spark.executor.cores": CORES,
        "spark.conf.spark.cores.max": CORES * total,
        "input.dir": HOME / "input",  # another part of the year than `make run` reads
        "output.dir": HOME / "output",
        "report.html": HOME / "report.html",
        "report.events": HOME / "run.jsonl",
    }


def job(set_keys: dict[str, object], more: Sequence[str], python: Path) -> subprocess.Popen[bytes]:
    """Start the job, in a process of its own."""
    words = [
        *_DIES_WITH_THIS,
        sys.executable,
        "-c",
        "from taskplace.cli import main; raise SystemExit(main())",
    ]
    words += ["run", "conf/flights.yaml"]
    for text in [*(f"{name}={value}" for name, value in set_keys.items()), *more]:
        words += ["--set", text]
    return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYSPARK_PYTHON": str(python)})


def wait_for_batches(count: int, ended: Callable[[], bool]) -> bool:
    """Wait until so many batches are committed; False if the job has ended before."""
    events = HOME / "run.jsonl"
    while not ended():
        if events.exists() and len(re.findall(r'"event": ?"batch"', events.read_text())) >= count:
            return True
        time.sleep(POLL_SECONDS)
    return False


def main() -> int:
    """Run the job on the cluster; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--executors", type=int, default=1, help="of each host")
    parser.add_argument("--after", type=int, default=4, help="batches after which the host is killed")
    parser.add_argument("--set", action="append", default=[], help="a key of conf/flights.yaml")
    given = parser.parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    STATE.mkdir(parents=True)
    environment, python = HOME / "environment.tar.gz", HOME / "python" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", HOME / "python"], check=True)
    if code := taskplace(["pack", str(environment)]):
        return code
    with Cluster(given.hosts, given.executors, python) as cluster:
        disk = (
            "each with its own disk" if cluster.own_disks else "which share a disk: no mount namespaces here"
        )
        print(f"hosts {', '.join(cluster.addresses)}, {disk}", flush=True)
        running = job(overrides(cluster, given.executors, environment), given.set, python)
        killed = threading.Event()

        def kill() -> None:
            if wait_for_batches(given.after, lambda: running.poll() is not None):
                host = cluster.addresses[1]
                print(f"host {host} is killed: {cluster.kill(host)} processes", flush=True)
                killed.set()

        thread = threading.Thread(target=kill)
        thread.start()
        code = running.wait()
        thread.join()
    if not killed.is_set():
        print("the job ended before a host was killed", file=sys.stderr)
    return code or (0 if killed.is_set() else 1)


if __name__ == "__main__":
    sys.exit(main())
