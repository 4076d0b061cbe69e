"""Environments that a worker keeps open between its attempts and visits, because opening one costs as much as its work.

An open environment is used again only while its path still leads to its data file and to its lock file. A copy that was
discarded and made again has other files. Processes with different lock files do not see each other, and would write at
the same time. An environment is closed after any error, when its copy is removed, and when others were used more
recently. After a minute without tasks, Spark ends the worker with all of them.

LMDB must not open one file twice in a process. So everybody in a worker who opens a copy asks here first.

Not thread-safe: a worker has one thread that opens copies.
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from taskplace.spark.state.environment import Environment, FileId, file_ids

#: The most environments that a process keeps open. Each takes a part of the address space and three file descriptors.
#: An executor's bins take turns on its workers, so a worker sees all its copies; with fewer, it would open most anew.
ENVIRONMENTS_LIMIT = 1024
#: At most this part of the file descriptors that a process may have.
DESCRIPTORS_SHARE = 1 / 8


class Warm:
    """The environments that a process keeps open: at most `most`, by path; those used last are kept."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._kept: OrderedDict[Path, Environment] = OrderedDict()
        self._paths: dict[FileId, Path] = {}  # by data file, of those that are kept

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, path: Path) -> bool:
        """Return whether an environment is kept open for a path; the files there may be others by now."""
        return path in self._kept

    def take(self, path: Path, names: Iterable[bytes]) -> Environment:
        """Return the open environment of a copy, or open it. Errors: as `Environment`."""
        names = tuple(names)
        environment = self._checked(path)
        if environment is not None and environment.databases.keys() >= set(names):
            return environment
        if environment is not None:
            environment.close()  # the topology has another store now
        return Environment(path, names)

    def give_back(self, environment: Environment) -> None:
        """Keep an environment open for its next use. No transaction may be open."""
        if not self.most:
            environment.close()
            return
        self._kept[environment.path] = environment
        self._paths[environment.file_id] = environment.path
        while len(self._kept) > self.most:
            self._removed(next(iter(self._kept))).close()

    @contextmanager
    def borrow(self, path: Path) -> Iterator[Environment | None]:
        """Yield the open environment of a copy, or None if it is not open. An error closes it."""
        environment = self._checked(path)
        if environment is None:
            yield None
            return
        try:
            yield environment
        except BaseException:
            environment.close()
            raise
        self.give_back(environment)

    def drop(self, path: Path) -> None:
        """Close the environment of a copy, if it is open."""
        environment = self._taken(path)
        if environment is not None:
            environment.close()

    def tidy(self) -> None:
        """Close the environments of removed copies. This frees their disk space."""
        for path, environment in list(self._kept.items()):
            if not environment.file().st_nlink:
                self._removed(path).close()

    def clear(self) -> None:
        """Close all environments."""
        while self._kept:
            self._removed(next(iter(self._kept))).close()

    def _removed(self, path: Path) -> Environment:
        """Take the environment of a path out, still open."""
        environment = self._kept.pop(path)
        if self._paths.get(environment.file_id) == path:
            del self._paths[environment.file_id]
        return environment

    def _checked(self, path: Path) -> Environment | None:
        """Take out the environment of a copy, and check its file. Errors: `lmdb.CorruptedError`; it is closed then."""
        environment = self._taken(path)
        if environment is not None:
            try:
                environment.check()
            except BaseException:
                environment.close()
                raise
        return environment

    def _taken(self, path: Path) -> Environment | None:
        """Take out the environment of a copy; None if no open environment has the files that are at `path` now.

        LMDB refuses to open a path or a file a second time. So an environment at `path` with another data file or lock
        file is closed, and one with this data file at another path, because its directory was renamed.
        """
        if not self._kept:
            return None
        data, lock = file_ids(path)
        if path in self._kept:
            kept = self._removed(path)
            if (kept.file_id, kept.lock_id) == (data, lock):
                return kept
            kept.close()
        if data is not None and (renamed := self._paths.get(data)) is not None:
            self._removed(renamed).close()
        return None


#: The environments of this process. It keeps none before `start`.
WARM = Warm()


def start() -> None:
    """Let this process keep environments open, and close those of removed copies. Workers of Spark call it."""
    if not WARM.most:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        WARM.most = (
            ENVIRONMENTS_LIMIT
            if descriptors == resource.RLIM_INFINITY
            else min(ENVIRONMENTS_LIMIT, int(descriptors * DESCRIPTORS_SHARE))
        )
    WARM.tidy()


# LMDB's environments must not be used behind a fork: neither by the child, nor opened there a second time.
os.register_at_fork(before=WARM.clear)
