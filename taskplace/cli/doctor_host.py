"""What the doctor reads of this host: the limit of memory, the file systems, the installed packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from taskplace.doctor import HostFacts, Package

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
#: A limit of version 1 that means none: the largest number of pages.
_UNLIMITED = 1 << 60


def this_host(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> HostFacts:
    """Return the facts of this host, as far as its system tells. `proc`, `cgroups`: its file systems for them."""
    limits = [limit for limit in (_physical(), *_limits(proc, cgroups)) if limit is not None]
    return HostFacts(min(limits, default=None), dict(_mounts(proc)))


def _physical() -> int | None:
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _limits(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield the limits of this process's control groups, and of those above them: versions 2 and 1."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top, name = (
                (cgroups, "memory.max") if not controllers else (cgroups / "memory", "memory.limit_in_bytes")
            )
            group = top / path.lstrip("/")
            for each in (group, *group.parents):
                with suppress(OSError, ValueError):
                    if (limit := int((each / name).read_text())) < _UNLIMITED:
                        yield limit
                if each == top:
                    break


def _mounts(proc: Path) -> Iterator[tuple[str, str]]:
    """Yield the mount points with the types of their file systems."""
    with suppress(OSError):
        for line in (proc / "self" / "mounts").read_text().splitlines():
            _, point, kind, *_ = line.split()
            yield point.replace("\\040", " "), kind


def installed(*, steered: bool) -> tuple[Package, ...]:
    """Return the installed packages that taskplace names, with the ranges that it was tested with."""
    extras = ("", "steering" if steered else "spark", "kafka", "metrics")
    with suppress(PackageNotFoundError):
        return tuple(_packages(requires("taskplace") or (), extras))
    return ()


def _packages(requirements: list[str] | tuple[()], extras: tuple[str, ...]) -> Iterator[Package]:
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
            with suppress(PackageNotFoundError):
                yield Package(requirement.name, version(requirement.name), requirement.specifier)
