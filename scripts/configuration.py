"""Writes docs/configuration.md from the keys as the code declares them: `python scripts/configuration.py`."""

from __future__ import annotations

from pathlib import Path

from taskplace.groups.coordinator import CoordinatorSettings
from taskplace.groups.member import MemberSettings
from taskplace.groups.partitioner import PartitionerConfig
from taskplace.model.keys import Configuration
from taskplace.spark.steering.config import SteeringConfig
from taskplace.spec.application import FREE, SECTIONS, ChaosSettings
from taskplace.spec.nodes import OF_FILE
from topology.entry_fields import SECTIONS as TOPOLOGY_SECTIONS

FILE = Path(__file__).parents[1] / "docs" / "configuration.md"
HEAD = """# Configuration

Every key, as the code declares it (`scripts/configuration.py`). A key is one word, with its dots, in a section. Files
are YAML 1.2: `yes`, `no`, `on`, `off` and dates are texts.

```yaml
application: {id: orders}
placement:
  num.standby.replicas: 1
runtime:
  snapshot.interval: 5
```

On the command line: `--set runtime.snapshot.interval=5`. `taskplace config FILE --all` shows the values in force.
Unknown keys are refused with the nearest known one.

## Variables of the environment

```yaml
checkpoint:
  dir: ${OUT}/orders
placement: {num.standby.replicas: "${STANDBYS:-1}"}
```

In the file and in `--set`, `${NAME}` is the value of a variable, which must be set and not empty; `${NAME:-default}`
takes the default then. `$${` is a literal `${`. Quote references inside braces and brackets. A quoted one is a text,
another what it looks like. Below `spark.conf` nothing is replaced, because Spark has its own `${...}`."""
OTHERS = (
    ("An entry of the list `chaos`", ChaosSettings),
    ("Steering (`taskplace.spark.steer`)", SteeringConfig),
    ("The partitioner (`taskplace.groups.partitioner`)", PartitionerConfig),
    ("A group's coordinator (`taskplace.groups`), in Python only", CoordinatorSettings),
    ("A member of a group (`taskplace.groups`), in Python only", MemberSettings),
)


def page() -> str:
    """Return the page. Needs Spark's packages, whose defaults it names."""
    import configuration_fields

    parts = [HEAD]
    for name, section in sorted(SECTIONS.items()):
        parts.append(f"## `{name}`\n\n{_summary(section)}\n\n{section.reference()}")
    free = ", ".join(f"`{name}`" for name in FREE)
    parts.append(f"## {free}\n\n{_entries()}")
    parts += configuration_fields.parts()
    parts += [f"## {title}\n\n{_summary(part)}\n\n{part.reference()}" for title, part in OTHERS]
    return "\n\n".join(parts) + "\n"


def _entries() -> str:
    lines = ["| an entry of | fields |", "|---|---|"]
    for section, fields in {**TOPOLOGY_SECTIONS, "sources": OF_FILE}.items():
        lines.append(f"| `topology.{section}` | {', '.join(f'`{field}`' for field in fields)} |")
    return "\n".join(lines)


def _summary(section: type[Configuration]) -> str:
    line = (section.__doc__ or "").partition("\n")[0]
    return line.partition(";")[0].rstrip(".") + "."


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
