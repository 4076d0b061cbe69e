"""Guards a directory, and a command that works in it: both end with the process that started them.

    python guard.py STARTER DIRECTORY [LOG COMMAND...]

STARTER is the process id of the parent. When it ends, also by kill -9, the command is killed and the directory removed.
When the command ends by itself, so does the guard, with its exit code, and the directory stays. The first line on
standard output is the process id of the command. Its own output goes to the file LOG.

Several guards may share a directory: each removes it when its own command is dead, so the last one leaves nothing.

The guard waits on process descriptors (Linux). If the guard itself is killed, the kernel kills the command.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. The parent must have one thread only."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for_either(starter: int, command: int | None) -> bool:
    """Wait until the starter or the command ends. Return whether it was the starter."""
    try:
        waited = [os.pidfd_open(starter)]
    except ProcessLookupError:
        return True
    if os.getppid() != starter:  # it ended before, and its id may belong to another process now
        return True
    if command is not None:
        waited.append(os.pidfd_open(command))
    poll = select.poll()
    for descriptor in waited:
        poll.register(descriptor, select.POLLIN)
    return waited[0] in {descriptor for descriptor, _ in poll.poll()}


def main(starter: str, directory: str, *rest: str) -> int:
    """Guard until the starter or the command ends."""
    if not rest:
        _wait_for_either(int(starter), None)
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    log, *command = rest
    with Path(log).open("ab") as output:
        guarded = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_die_with_parent
        )
    print(guarded.pid, flush=True)
    if _wait_for_either(int(starter), guarded.pid):
        guarded.kill()
        guarded.wait()
        shutil.rmtree(directory, ignore_errors=True)
    code = guarded.wait()
    return code if code >= 0 else 128 - code  # killed by a signal: as a shell says it


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
