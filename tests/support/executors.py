"""The processes of the executors that this process has started."""

from __future__ import annotations

import contextlib

import psutil


def executor_processes(driver: int | None = None) -> dict[str, psutil.Process]:
    """Return the JVMs of all executors of a driver, by instance. `driver`: its process id; None: this process."""
    found = {}
    for process in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # the process has just ended
            line = process.cmdline()
            if "--executor-id" in line and "java" in process.name():
                found[f"executor-{line[line.index('--executor-id') + 1]}"] = process
    return found
