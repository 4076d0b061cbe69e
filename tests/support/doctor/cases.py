"""A case of a rule: changes of the sound application, and what the rule says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from taskplace.doctor import Facts, Severity, StoreFacts
from taskplace.spec.document import override
from tests.support.doctor.remedies import Changes
from tests.support.doctor.sound_application import CHECKPOINT, facts, overridden

ADVICE, WARNING = Severity.ADVICE, Severity.WARNING
LOCAL_CLUSTER = "spark.master=local-cluster[3,2,1024]"
NO_LIMIT = f"placement.acceptable.recovery.lag={2**63 - 1}"
#: The stream reads what is there, and ends.
ENDS = ("spark.trigger.interval",)


class Case(NamedTuple):
    """Changes of the sound application.

    - `path`: of the finding; "" if there must be none
    - `overrides`, `more`: the arguments of `sound_application.facts`
    - `ends`: whether the pasted remedy ends the finding; it cannot where facts do not follow from the file
    - `says`: a part of what the finding says was found; `severity`: if it is less than the rule's
    """

    path: str
    overrides: Sequence[str] = ()
    says: str = ""
    severity: Severity | None = None
    more: Mapping[str, Any] = MappingProxyType({})
    ends: bool = True

    def facts(self, *remedies: Changes) -> Facts:
        """Return the facts, after the changes of remedies."""
        overrides = [text for each in remedies for text in each.overrides]
        removed = {path for each in remedies for path in each.removed}
        written = {path: lines for each in remedies for path, lines in each.written.items()}
        made = facts(*self.overrides, *overrides, **{"removed": removed, "lines": written} | self.more)
        for path, value in map(override, overrides):
            made = overridden(made, path, value) if path.startswith("topology.") else made
        return made


Cases: TypeAlias = Mapping[str, tuple[Case, ...]]


def fires(
    path: str,
    *overrides: str,
    says: str = "",
    severity: Severity | None = None,
    ends: bool = True,
    **more: Any,
) -> Case:
    """Return a case with a finding at `path`."""
    return Case(path, overrides, says, severity, more, ends)


def quiet(*overrides: str, **more: Any) -> Case:
    """Return a case without a finding."""
    return Case("", overrides, more=more)


def spark(key: str, value: object) -> str:
    """Return an override of one of Spark's properties."""
    return f"spark.conf.{key}={value}"


DYNAMIC = (
    spark("spark.dynamicAllocation.enabled", "true"),
    spark("spark.dynamicAllocation.minExecutors", 2),
    spark("spark.dynamicAllocation.executorIdleTimeout", "600s"),
    spark("spark.decommission.enabled", "true"),
)


def one_store(**fields: Any) -> tuple[StoreFacts, ...]:
    """Return a store that keeps the ids of rows for ever, with some changes."""
    given = {
        "name": "seen",
        "path": "topology.nodes.once.options",
        "processor": "deduplicate",
        "retention_ms": None,
    }
    return (StoreFacts(**{**given, **fields}),)


def with_checkpoint(**fields: Any) -> dict[str, Any]:
    """Return the changes for another checkpoint."""
    return {"checkpoint": CHECKPOINT._replace(**fields)}
