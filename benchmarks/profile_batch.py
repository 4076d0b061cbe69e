"""Where a batch's time goes: its critical path, processor time by thread, and flame graphs, of one stream at work.

    python benchmarks/profile_batch.py [--rows 200000] [--keys 10000] [--tasks 12] [--batches 40] [--native] [--empty]
                                       [--flames DIR]

The rows are those of `bench_throughput.py`; a batch is a file. After batches that do not count:

- critical path: medians of the spans of a batch, from Spark's own records of its jobs and stages. "before" is from the
  start of the trigger until the first stage is submitted, "between" lies between two stages, "after" follows the last.
  Only batches without other jobs beside them count.
- processor time: seconds a batch by process and kind of thread, from the kernel's counters, so nothing is missed.
  Threads that ended meanwhile are in their process's "other".
- flame graphs, in a second period of as many batches, because sampling costs time itself: py-spy for the driver and the
  Python workers, Java Flight Recorder for the JVMs. With `--flames DIR`: `driver-python.svg`, `workers-python.svg`,
  `driver-jvm.html` and `executors-jvm.html`. Needs `py-spy`, a JDK and Maven (for jfr-converter).

The figures are of one stream by itself; ratios between variants are measured by the other benchmarks.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from bench_tasks import placed
from bench_throughput import SCHEMA, Size, native
from spark_bench import Out, Stream, arguments, cluster, executor_processes

CONVERTER = "tools.profiler:jfr-converter:4.2"

#: Native frames in which a thread waits; Java Flight Recorder samples them all the same.
WAITING = "epollWait|EPoll.wait|readBytes|Net.accept|waitForProcessExit|SocketDispatcher.read|Net.poll"

#: What a JVM's thread does, by the start of its name (the kernel keeps 15 characters).
KINDS = (
    ("compiling Java", ("C1 Compiler", "C2 Compiler")),
    ("garbage collection", ("GC Thread", "G1 ", "VM Thread")),
    ("Spark tasks", ("Executor task",)),
    ("feeding Python", ("Writer Monitor", "stdout writer", "Thread-")),
    ("trigger and planning", ("stream executio",)),
    ("scheduler", ("dag-scheduler", "task-result", "dispatcher", "block-manager")),
    ("network", ("rpc-", "shuffle-", "netty", "files-")),
)


def kind_of(thread: str) -> str:
    """Return what a JVM's thread does."""
    return next((kind for kind, names in KINDS if thread.startswith(names)), "other")


class ProcessorTime:
    """Counts processor seconds of a driver, its executors and their Python workers, by kind of thread."""

    def __init__(self) -> None:
        self._start = self._read()

    def since(self) -> Counter[tuple[str, str]]:
        """Return the seconds since it was made, by process and kind of thread."""
        now, found = self._read(), Counter[tuple[str, str]]()
        for where, seconds in now.items():
            found[where] += seconds - self._start.get(where, 0.0)
        return found

    def _read(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        executors = {process.pid for process in executor_processes().values()}
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                role = _role(process, executors)
                if role is None:
                    continue
                times = process.cpu_times()
                total = times.user + times.system
                if role.endswith("JVM"):
                    for kind, seconds in _threads(process.pid):
                        found[role, kind] += seconds
                        total -= seconds
                found[role, "other" if role.endswith("JVM") else "all threads"] += total
        return found


def _role(process: psutil.Process, executors: set[int]) -> str | None:
    if process.pid == psutil.Process().pid:
        return "driver, Python"
    if process.pid in executors:
        return "executors, JVM"
    name = process.name()
    if name == "java":
        return "driver, JVM"
    if any("pyspark" in part for part in process.cmdline()):
        return "executors, Python workers"
    return None


def _threads(pid: int) -> Iterator[tuple[str, float]]:
    """Yield kind and processor seconds of each thread of a JVM."""
    ticks = 100.0
    for folder in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = (folder / "stat").read_text()
            name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
            yield kind_of(name), (int(rest[11]) + int(rest[12])) / ticks


# -- the critical path


def stages_of(spark: Any) -> list[tuple[float, float]]:
    """Return when each completed stage was submitted and completed, in seconds since 1970, in order."""
    store = spark.sparkContext._jsc.sc().statusStore()
    java, gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
    none = java.java.util.ArrayList()
    stages = store.stageList(none, False, False, gateway.new_array(java.double, 0), none)
    found = []
    for stage in java.scala.jdk.javaapi.CollectionConverters.asJava(stages):
        submitted, completed = stage.submissionTime(), stage.completionTime()
        if submitted.isDefined() and completed.isDefined():
            found.append((submitted.get().getTime() / 1000, completed.get().getTime() / 1000))
    return sorted(found)


def paths(stream: Stream, batches: list[int], stages: list[tuple[float, float]]) -> list[dict[str, float]]:
    """Return the spans of each batch, in the order in which they follow each other."""
    from datetime import datetime

    found: list[dict[str, float]] = []
    for batch in batches:
        progress = stream.progress(batch)
        start = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
        end = start + progress.durationMs["triggerExecution"] / 1000
        own = [(a, b) for a, b in stages if start <= a <= end]
        spans, at = {}, start
        for number, (submitted, completed) in enumerate(own):
            name = "before the first stage" if number == 0 else f"between stages {number} and {number + 1}"
            spans[name] = max(0.0, submitted - at)
            spans[f"stage {number + 1}"] = completed - max(submitted, at)
            at = completed
        spans["after the last stage"] = end - at
        spans["whole batch"] = end - start
        found.append(spans)
    fewest = min(map(len, found))  # in the others, visits that write snapshots run beside the batch
    return [spans for spans in found if len(spans) == fewest]


# -- flame graphs


class Flames:
    """Samples all processes while it is open, and writes a flame graph for each kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jvms: list[tuple[str, int]] = []
        self._spies: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Flames:
        self._folder.mkdir(parents=True, exist_ok=True)
        executors = list(executor_processes().values())
        own = psutil.Process()
        driver = next(child for child in own.children() if child.name() == "java")
        self._jvms = [("driver", driver.pid), *(("executors", process.pid) for process in executors)]
        for _, pid in self._jvms:
            _run("jcmd", str(pid), "JFR.start", "name=batch", "settings=profile")
        self._spy("driver-python", own.pid)
        daemons = [c for e in executors for c in e.children() if "pyspark.daemon" in " ".join(c.cmdline())]
        for number, daemon in enumerate(daemons):
            self._spy(f"workers-python-{number + 1}", daemon.pid, "--subprocesses")
        return self

    def __exit__(self, *_: object) -> None:
        for spy in self._spies:
            spy.send_signal(2)
        for number, (name, pid) in enumerate(self._jvms):
            _run("jcmd", str(pid), "JFR.dump", "name=batch", f"filename={self._folder}/{name}-{number}.jfr")
            _run("jcmd", str(pid), "JFR.stop", "name=batch")
        for spy in self._spies:
            spy.wait(60)
        self._convert()

    def _spy(self, name: str, pid: int, *more: str) -> None:
        command = [
            str(Path(sys.executable).with_name("py-spy")),
            "record",
            "-p",
            str(pid),
            "-r",
            "200",
            *more,
        ]
        command += ["-f", "flamegraph", "-o", str(self._folder / f"{name}.svg")]
        self._spies.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def _convert(self) -> None:
        _run(
            "mvn",
            "--batch-mode",
            "-q",
            "dependency:copy",
            f"-Dartifact={CONVERTER}",
            f"-DoutputDirectory={self._folder}",
        )
        jar = next(self._folder.glob("jfr-converter-*.jar"))
        for name in ("driver", "executors"):
            recordings = sorted(map(str, self._folder.glob(f"{name}-*.jfr")))
            graph = str(self._folder / f"{name}-jvm.html")
            _run("java", "-jar", str(jar), "-o", "html", "--threads", "-X", WAITING, *recordings, graph)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command[:3])}: exit code {done.returncode}: {done.stderr[-500:] or done.stdout[-500:]}"
        )


# -- the measurement


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--batches", type=int, default=40, help="batches of a period (%(default)s)")
    parser.add_argument("--native", action="store_true", help="Spark's own aggregation instead")
    parser.add_argument("--empty", action="store_true", help="batches without rows")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    parser.add_argument("--flames", type=Path, help="write flame graphs into this directory")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    count = 3 if args.quick else args.batches
    out = Out(args, "profile-batch")
    conf = dict(setting.split("=", 1) for setting in args.conf)
    with cluster("profile-batch", args.scratch, **conf) as (spark, folder):
        start: Callable[[Any, Path], Any] = native if args.native else placed(args.tasks, spark)
        size = Size(folder, *((1_200, 120) if args.quick else (args.rows, args.keys)), args.seed)
        stream = Stream(spark, "native" if args.native else "placed", folder / "stream", SCHEMA, start)
        files = [size.empty] if args.empty else size.files

        def period() -> list[int]:
            return [_number(stream, files[number % len(files)]) for number in range(count)]

        stream.run(size.warm)
        period()
        out.note("warm")
        clock, began = ProcessorTime(), time.monotonic()
        batches = period()
        seconds, used = time.monotonic() - began, clock.since()
        found = paths(stream, batches, stages_of(spark))
        out.keep("critical path", found)
        out.keep("processor time", {" / ".join(where): s / count for where, s in used.items()})
        _show(out, found, used, count, seconds)
        if args.flames is not None:
            with Flames(args.flames.resolve()):
                period()
            out.say(f"flame graphs: {args.flames}")
        stream.stop()
    out.close()


def _number(stream: Stream, file: Path) -> int:
    batch = stream.feed(file)
    stream.wait(batch)
    return batch


def _show(
    out: Out, found: list[dict[str, float]], used: Counter[tuple[str, str]], count: int, seconds: float
) -> None:
    most = max((spans for spans in found), key=len)
    rows = []
    for name in most:
        some = [spans[name] for spans in found if name in spans]
        rows.append([name, f"{statistics.median(some):.3f} s", f"({min(some):.3f}-{max(some):.3f})"])
    out.say("\nThe critical path of a batch (medians; the range of all)")
    out.table(["span", "seconds", ""], rows)
    total = sum(used.values())
    out.say(f"\nProcessor time of a batch; a batch and its wait took {seconds / count:.2f} s")
    rows = [
        [role, kind, f"{s / count:.3f} s", f"{s / total:.0%}"]
        for (role, kind), s in used.most_common()
        if s / count > 0.002
    ]
    out.table(["process", "threads", "seconds", "share"], [*rows, ["all", "", f"{total / count:.3f} s", ""]])


if __name__ == "__main__":
    main()
