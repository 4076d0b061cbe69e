"""A finding of the doctor, and a rule that yields findings.

**Idea.** A rule is one small function of the facts. It yields what it found, where, why it matters, and the remedy. Its
decorator has the rest: the id, the worst severity, what the rule looks for, and the facts that it needs. The table in
docs/operations.md is made of these.

Properties: rules are pure. They read facts, and ask neither files nor Spark.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from taskplace.doctor.facts import Facts, Need
from taskplace.model.keys import as_yaml
from taskplace.redaction import redacted, scrubbed


class Severity(StrEnum):
    """How bad a finding is, worst first.

    - `error`: the stream does not start, or its answers are in danger
    - `warning`: a setting is ignored or contradicts another, or the stream is needlessly slow or fragile
    - `advice`: it works; it could be better, or somebody should know
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class Found(NamedTuple):
    """What a rule yields.

    - `path`: the key in the file, or what else is to be changed
    - `what`: the value that was found, or what follows from it
    - `why`: why it matters, in one or two sentences
    - `remedy`: a line that can be pasted: options of the command line, or a command; or, behind a `#`, what a person
      does: a key to remove, lines of the file
    - `severity`: only if it is less than the rule's
    - `expected`: only of what `taskplace run` refuses before it starts Spark: what it expects instead
    """

    path: str
    what: str
    why: str
    remedy: str
    severity: Severity | None = None
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding, with its rule and severity. Values of secret options are hidden in it."""

    rule: str
    severity: Severity
    path: str
    found: str
    why: str
    remedy: str

    def to_dict(self) -> dict[str, str]:
        """Return the finding as JSON values."""
        return {name: str(getattr(self, name)) for name in self.__slots__}


Look = Callable[[Facts], Iterator[Found]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    - `id`: its name in reports; `severity`: of its worst findings
    - `looks_for`: one line for the table of rules
    - `needs`: the facts without which it cannot look
    - `placed`, `steered`: the kinds of applications that it is for
    """

    id: str
    severity: Severity
    looks_for: str
    look: Look
    needs: tuple[Need, ...] = ()
    placed: bool = True
    steered: bool = False

    def findings(self, facts: Facts) -> tuple[Finding, ...]:
        """Return what the rule finds. The caller makes sure that the facts which it needs are there."""
        return tuple(
            Finding(
                self.id,
                found.severity or self.severity,
                found.path,
                str(redacted(found.what, found.path)),
                scrubbed(found.why),
                scrubbed(found.remedy),
            )
            for found in self.look(facts)
        )


def rule(
    id_: str,
    severity: Severity,
    looks_for: str,
    *,
    needs: tuple[Need, ...] = (),
    placed: bool = True,
    steered: bool = False,
) -> Callable[[Look], Rule]:
    """Make a rule of a function; for the arguments, see `Rule`."""

    def made(look: Look) -> Rule:
        return Rule(id_, severity, looks_for, look, needs=needs, placed=placed, steered=steered)

    return made


def set_key(path: str, value: Any) -> str:
    """Return the option of the command line that sets a key.

    >>> set_key("placement.max.warmup.replicas", 16), set_key("topology.nodes.once.options.ttl", "1 day")
    ('--set placement.max.warmup.replicas=16', "--set 'topology.nodes.once.options.ttl=1 day'")
    """
    return f"--set {shlex.quote(f'{path}={as_yaml(value)}')}"


def write(path: str, value: Any) -> str:
    """Return the remedy for what a person has to complete: lines of the file, which are added to what is there.

    >>> write("runtime.tags", {"HOST": {"zone": "ZONE-1"}})
    '# in runtime.tags: {HOST: {zone: ZONE-1}}'
    """
    return f"# in {path}: {in_one_line(value)}"


def in_one_line(value: Any) -> str:
    """Return nested values as YAML in one line.

    >>> in_one_line({"by": {"id": "long"}, "ttl": "7 days"})
    '{by: {id: long}, ttl: 7 days}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {in_one_line(each)}" for name, each in value.items()) + "}"
    return as_yaml(value)


def remove(path: str) -> str:
    """Return the remedy for a key that should not be there: no option of the command line removes one.

    `path`: also of a property in a file of Spark's properties, as in `SparkProperties.where`.

    >>> remove("runtime.locality.wait.ms"), remove("cluster.conf: spark.remote")
    ('# remove runtime.locality.wait.ms', '# remove spark.remote from cluster.conf')
    """
    file, colon, key = path.rpartition(": ")
    return f"# remove {key} from {file}" if colon else f"# remove {path}"


def rename(path: str, name: str) -> str:
    """Return the remedy for a key with a wrong name; `path` as for `remove`.

    >>> rename("spark.conf.speculation", "spark.speculation"), rename("a.conf: spark.cores", "spark.cores.max")
    ('# rename spark.conf.speculation to spark.speculation', '# rename spark.cores to spark.cores.max in a.conf')
    """
    file, colon, key = path.rpartition(": ")
    return f"# rename {key} to {name} in {file}" if colon else f"# rename {path} to {name}"
