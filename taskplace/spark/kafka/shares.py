"""Publishes a batch in several transactions at the same time, each by a process of its own.

**Idea.** The staged files of a batch are split among shares, and each share is published exactly once, as
`Transactions` does with a whole batch. A batch is not atomic: readers may see one share before another.

Properties:
- A share has whole files. The rows of one task are in one file, so the rows of a key stay in order if the sink's key
  decides the task. The next batch begins when all shares are in the topic.
- Which share has a file follows from the files alone. So a batch that is published again has the same shares, if there
  are as many; `SinkTopics.check` refuses another number then.
- A share without files needs no transaction.

Errors: those of `taskplace.spark.kafka.transactions`; `SinkError` for a process that has ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from taskplace.errors import CheckpointError, Fenced, SinkError
from taskplace.spark.kafka.share_process import EPOCH, Opened, Setup, Share
from taskplace.spark.kafka.transactions import Transactions
from taskplace.spark.targets import Commit, Output

END_SECONDS = 5.0
#: With `-m`, the module would have another name, and its messages other types.
_PROGRAM = "import sys; from taskplace.spark.kafka import share_process; share_process.main(int(sys.argv[1]))"
_ERRORS = {error.__name__: error for error in (CheckpointError, Fenced, SinkError)}


def shared(files: Sequence[Path], number: int) -> list[list[Path]]:
    """Return the files of each share, in their order: large files first, each to the share with the fewest bytes."""
    sizes = [file.stat().st_size for file in files]
    loads, shares = [0] * number, [[] for _ in range(number)]  # type: ignore[var-annotated]
    for at in sorted(range(len(files)), key=lambda at: (-sizes[at], at)):
        least = loads.index(min(loads))
        loads[least] += sizes[at]
        shares[least].append(at)
    return [[files[at] for at in sorted(share)] for share in shares]


class Shares:
    """The shares of one sink. Lifetime: processes from `open`, or the first batch, until an error or `close`.

    - `setup`: its `share` is not used
    - `local`: a writer with the same properties of clients, for the probe
    """

    def __init__(self, setup: Setup, number: int, local: Transactions) -> None:
        self._setup, self._number, self._local = setup, number, local
        self._processes: dict[int, _Process] = {}

    def probe(self) -> None:
        """Make a producer, and give it up. Errors: as for `Transactions.probe`."""
        self._local.probe()

    def open(self, output: Output) -> None:
        """Fence the producers of earlier drivers, and read all markers. Errors: those of the module."""
        opened = Opened(output.checkpoint_id, output.sink)
        self._all(dict.fromkeys(range(self._number), opened), output.check_epoch)

    def publish(self, commit: Commit, records: Callable[[], Iterator[Any]]) -> None:
        """Publish a batch. The processes read the files themselves, so `records` is not called."""
        if len(self._processes) < self._number:  # after an error
            self.open(
                Output(checkpoint_id=commit.checkpoint_id, sink=commit.sink, check_epoch=commit.check_epoch)
            )
        requests = {
            number: Share(commit.checkpoint_id, commit.sink, commit.batch_id, commit.checksum, files)
            for number, files in enumerate(shared(commit.files, self._number))
            if files
        }
        self._all(requests, commit.check_epoch)

    def close(self) -> None:
        """End the processes. The next batch starts new ones."""
        while self._processes:
            self._processes.popitem()[1].close()

    def _all(self, requests: dict[int, Any], check_epoch: Callable[[], None]) -> None:
        """Have each process do its request. Errors: `Fenced` before all others; the processes are ended."""
        for number in requests:
            if number not in self._processes:
                share = f"{number}/{self._number}"
                self._processes[number] = _Process(replace(self._setup, share=share))
        with ThreadPoolExecutor(len(requests) or 1) as pool:
            done = [
                pool.submit(self._processes[number].do, what, check_epoch)
                for number, what in requests.items()
            ]
        errors = [error for each in done if (error := each.exception()) is not None]
        if errors:
            self.close()
            raise next((error for error in errors if isinstance(error, Fenced)), errors[0])


class _Process:
    """One process, and the pipe to it."""

    def __init__(self, setup: Setup) -> None:
        self._share = setup.share
        self._pipe, theirs = Pipe()
        command = [sys.executable, "-c", _PROGRAM, str(theirs.fileno())]
        paths = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if _has_handle(sys.stderr) else subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )
        theirs.close()
        self._pipe.send(setup)

    def do(self, request: Any, check_epoch: Callable[[], None]) -> None:
        """Have a request done. Errors: those of the module."""
        try:
            self._pipe.send(request)
            while (answer := self._pipe.recv()) == EPOCH:
                self._pipe.send(_fenced(check_epoch))
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):  # its pipe ends before it does
                self._process.wait(END_SECONDS)
            code = self._process.poll()
            raise SinkError(
                f"share {self._share} of a batch: its process has ended with exit code {code}; start again"
            ) from None
        if answer is not None:
            name, text = answer
            raise _ERRORS.get(name, SinkError)(text if name in _ERRORS else f"{name}: {text}")

    def close(self) -> None:
        """End the process: by itself if it is idle, by a signal if not."""
        self._pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _fenced(check_epoch: Callable[[], None]) -> str | None:
    """Return why this driver is not in charge any more; None: it is."""
    try:
        check_epoch()
    except Fenced as error:
        return str(error)
    return None


def _has_handle(stream: Any) -> bool:
    try:
        return stream is not None and stream.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False
