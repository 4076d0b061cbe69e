"""Which known name a wrong one is likely to mean, and which it is not."""

from __future__ import annotations

import pytest

from topology.errors import nearest_name


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("wether", ["flights", "weather"], "weather"),
        ("num.standby.replica", ["num.standby.replicas", "max.warmup.replicas"], "num.standby.replicas"),
        ("end", ["id", "end_offset"], "end_offset"),
        ("metric_port", ["metrics.port", "metrics.host"], "metrics.port"),
        ("dir", ["directory"], "directory"),
        ("kil", ["add", "kill"], "kill"),
        ("ba", ["ab", "cd"], "ab"),
        ("format", ["foreach", "kafka", "path"], ""),
        ("fish", ["bash", "zsh"], ""),
        ("--json", ["--set", "--output"], ""),
        ("replicas", ["num.standby.replicas", "max.warmup.replicas"], ""),
        ("", ["path"], ""),
        ("path", [], ""),
    ],
)
def test_only_a_name_that_is_alike_is_meant(name: str, known: list[str], meant: str) -> None:
    assert nearest_name(name, known) == meant
