"""The keys of an application that have no effect: what the rules of the doctor find that look for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from taskplace.doctor import Facts, SparkProperties
from taskplace.doctor.findings import Rule
from taskplace.doctor.rules import RULES
from taskplace.spec.application import Settings

#: Keys whose values are mappings: a reason is that of all their entries.
_MAPPINGS = ("runtime.tags", "runtime.weights")


def rules_of_ignored_keys() -> Iterator[Rule]:
    """Yield the rules that find keys without effect in the file alone."""
    for rule in RULES:
        of_names = rule.id in ("spark-property-overridden", "spark-property-unknown")
        if ("ignore" in rule.id or of_names) and rule.placed and not rule.needs:
            yield rule


def ignored(settings: Settings, written: Collection[str]) -> dict[str, str]:
    """Return the reason by the path of the key; that of a property of Spark is `spark.conf.<name>`.

    `written`: the paths of the keys that are set: a default is not ignored
    """
    facts = Facts(settings=settings, spark=SparkProperties(settings.spark), written=frozenset(written))
    found = [one for rule in rules_of_ignored_keys() for one in rule.findings(facts)]
    return {one.path: one.why for one in found}


def reason(reasons: dict[str, str], path: str) -> str:
    """Return why the value at a path has no effect, or "".

    >>> reason({"runtime.tags": "unused"}, "runtime.tags.host-1.zone")
    'unused'
    """
    whole = next((name for name in _MAPPINGS if path.startswith(f"{name}.")), path)
    return reasons.get(path, reasons.get(whole, ""))
