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

Every key of taskplace, as the code declares it, with its default and its values. `scripts/configuration.py` writes
this page.

A file has sections, and each section has keys. A key is one word, with its dots:

```yaml
application: {id: orders}
placement:
  num.standby.replicas: 1
runtime:
  snapshot.interval: 5
```

On the command line a key is named by its path: `--set runtime.snapshot.interval=5`. `taskplace config FILE --all` shows
the values that are in force, and where each comes from. Unknown keys are refused with the nearest known one.

## Variables of the environment

A value may refer to them, in the file and in `--set`:

```yaml
checkpoint:
  dir: ${OUT}/orders
placement: {num.standby.replicas: "${STANDBYS:-1}"}
```

`${NAME}` is the value of a variable, which has to be set and not empty; `${NAME:-default}` takes the default then.
`$${` is a literal `${`. Inside braces and brackets a reference has to be quoted. What is put in is one value: a text
where it is quoted, otherwise what it looks like. Everything below `spark.conf` is left alone, because Spark has a
`${...}` of its own."""
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
