"""All rules, by subject. A new rule is a function in one of these files, and an entry of its `RULES`."""

from __future__ import annotations

from taskplace.doctor.findings import Rule
from taskplace.doctor.rules import (
    checkpoints,
    directories,
    executors,
    inputs,
    locality,
    memory,
    outputs,
    standbys,
    state,
    versions,
    warmups,
)

#: By subject: the rules in the order in which they are listed.
SUBJECTS: dict[str, tuple[Rule, ...]] = {
    "Start and checkpoint": checkpoints.RULES,
    "Moves and lags": warmups.RULES,
    "Standbys and racks": standbys.RULES,
    "Spark's scheduler": locality.RULES,
    "Executors": executors.RULES,
    "Memory": memory.RULES,
    "Directories": directories.RULES,
    "State and time": state.RULES,
    "Sources": inputs.RULES,
    "Sinks and secrets": outputs.RULES,
    "Versions and properties": versions.RULES,
}
RULES: tuple[Rule, ...] = tuple(rule for rules in SUBJECTS.values() for rule in rules)
