"""The errors of taskplace; a caller that catches `TaskplaceError` catches them all.

TaskplaceError
├── InputError            bad input: configuration, problem, plan file (exit code 2)
│   └── ConfigError       a configuration key or value
├── InvalidPlan           a plan that breaks an invariant; it is never put in force
├── GroupError            an error of a group's members or coordinator: see taskplace.groups.messages
├── UnsupportedSpark      this Spark version or mode cannot be used, and why
├── CheckpointError       the checkpoint does not fit, or a file in it is damaged
├── SinkError             a sink cannot take a batch that is committed; it gets the batch again at the next start
├── Fenced                another driver has taken over this checkpoint; this one must stop
├── Superseded            an attempt that its own driver no longer wants; on executors only: see
│                         taskplace.spark.state.catching_up
└── DiskFull              a disk of an executor or of the driver is full: see taskplace.spark.worker.guard

An exception of an executor reaches the driver as text, in a PySpark `PythonException`. Of these errors,
`CheckpointError`, `Fenced` and `DiskFull` get their type again there (`taskplace.spark.bridge.jobs`); an
`InputError` does not.

Descriptions of topologies raise `topology.TopologyError`, a ValueError of a package that does not import this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from taskplace.redaction import redacted, scrubbed
from taskplace.wording import count as counted
from topology.errors import nearest_name, shown


class TaskplaceError(Exception):
    """The base of all errors that taskplace raises on purpose."""


def listed(values: Mapping[str, object]) -> str:
    """Return what each name has, in words for an error; the items of a list are joined.

    >>> listed({"orders": ["string"], "customers": ["bigint", "date"]})
    'orders: string; customers: bigint, date'
    """
    return "; ".join(
        f"{name}: {', '.join(map(str, each)) if isinstance(each, list | tuple) else each}"
        for name, each in values.items()
    )


#: A list of names, which is written without brackets and quotes.
_NAMES = re.compile(r"(?<=one of )\[('[^'\]]*'(?:, '[^'\]]*')*)\]")


class InputError(TaskplaceError, ValueError):
    """Bad input, refused before anything is started. Values that look like secrets are redacted.

    None stands for what is missing. Names of a list are written without brackets.

    >>> raise InputError("tasks[3].id", found="0-3", expected="a task id like '0_3'")
    Traceback (most recent call last):
    taskplace.errors.InputError: tasks[3].id: found '0-3', expected a task id like '0_3'
    """

    def __init__(self, path: str, *, found: object, expected: str, hint: str = "") -> None:
        self.path = path
        self.found = found = redacted(found, path)
        self.expected = expected = _NAMES.sub(lambda names: names[1].replace("'", ""), expected)
        self.hint = hint = scrubbed(hint)
        message = f"{path}: found {scrubbed(shown(found))}, expected {expected}{hint and '; ' + hint}"
        super().__init__(message.encode(errors="backslashreplace").decode())  # so that any log can hold it

    def at(self, path: str) -> ConfigError:
        """Return the same error for the path of a key in a file.

        >>> InputError("Count('n').by", found=1, expected="columns").at("topology.nodes.n.options.by")
        ConfigError('topology.nodes.n.options.by: found 1, expected columns')
        """
        made = ConfigError(path, found=self.found, expected=self.expected, hint=self.hint)
        made.args = (path + str(self).removeprefix(self.path),)
        return made


def plainly(error: InputError, text: str) -> InputError:
    """Return an error whose text says in its own words what was found and expected.

    >>> print(plainly(InputError("app.yaml", found="no file", expected="a file"), "there is no such file"))
    app.yaml: there is no such file
    """
    error.args = (f"{error.path}: {text}".encode(errors="backslashreplace").decode(),)
    return error


class ConfigError(InputError):
    """A configuration key that is unknown, or a value out of its range.

    >>> raise ConfigError("input.orders.path", found=None, expected="a directory or a URI")
    Traceback (most recent call last):
    taskplace.errors.ConfigError: input.orders.path: found nothing, expected a directory or a URI
    """

    @classmethod
    def unknown_key(cls, path: str, key: object, known: Iterable[str]) -> ConfigError:
        """Return the error for an unknown key; it names the nearest known one.

        >>> print(ConfigError.unknown_key("c", "num.standby.replica", ["num.standby.replicas"]))
        c.num.standby.replica: found an unknown key, expected 'num.standby.replicas', the only key here
        """
        known = sorted(known)
        near = nearest_name(str(key), known)
        hint = f"did you mean {near!r}?" if near else "known: " + ", ".join(known)
        expected = f"one of {counted(len(known), 'known key')}"
        if len(known) == 1:
            expected, hint = f"{known[0]!r}, the only key here", ""
        where = f"{path}.{key}" if path else str(key)
        error = cls(where, found=key, expected=expected, hint=hint)
        error.args = (f"{error.path}: found an unknown key, expected {expected}{hint and '; ' + hint}",)
        return error


class InvalidPlan(TaskplaceError):
    """A plan breaks an invariant of the engine (see `taskplace.verify`); it must not be put in force."""


class UnsupportedSpark(TaskplaceError):
    """This Spark version or mode cannot be used; the message says what works."""


class CheckpointError(TaskplaceError):
    """The checkpoint does not fit this application, or a file in it is missing or damaged."""


class SinkError(TaskplaceError):
    """A sink cannot be reached, or cannot take a committed batch. The batch stays committed."""


class Fenced(TaskplaceError):
    """Another driver has taken over this checkpoint; this one must stop."""
