"""A sink's directory that lies in another one, or around it, is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.errors import InputError
from taskplace.spark import ForeachBatch, ParquetSink
from taskplace.spark.driver.directory_overlaps import Used, check_overlaps, overlap
from topology import BuiltTopology, Topology


def sinks(*targets) -> BuiltTopology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    for number, target in enumerate(targets):
        rows.sink(f"out{number}", target=ParquetSink(target) if isinstance(target, Path) else target)
    return topo.build()


@pytest.mark.parametrize(
    ("out", "other", "read", "says"),
    [
        ("a/b", "a", False, "is inside"),
        ("a", "a/b/c", False, "contains"),
        ("a", "a", False, "is"),
        ("link/out", "real", False, "is inside"),  # links are followed
        ("real/out", "link", False, "is inside"),
        ("real/out", "link/*", True, "is matched by"),
        ("a", "ab", False, None),
    ],
)
def test_a_sink_and_another_directory(tmp_path, out, other, read, says):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    used = Used(tmp_path / other, "checkpoint", "the checkpoint", read=read)
    if says is None:
        check_overlaps(sinks(tmp_path / out, ForeachBatch(print), None), [used])
        return
    with pytest.raises(InputError, match=rf"^sinks\.out0\.target: found .*, which {says} .*the checkpoint"):
        check_overlaps(sinks(tmp_path / out), [used])
    if not read:
        with pytest.raises(InputError, match=rf"^sinks\.out1\.target: .* {says} .*directory of sink 'out0'"):
            check_overlaps(sinks(tmp_path / other, tmp_path / out), [])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("out", True), ("o*", True), ("*.csv", False), ("{in,out}/x", True), ("[ab]*", False), ("../*", True)],
)
def test_patterns_of_sources(pattern, expected):
    path = Path("/*") if pattern == "../*" else Path("/d") / pattern
    assert overlap(Path("/d/out"), path, other=True) is expected
    assert overlap(path, Path("/d/out"), mine=True) is expected
    assert overlap(Path("/d/out"), path) is (pattern == "out")  # names with these letters


def test_two_inputs_may_share_a_directory():
    check_overlaps(sinks(), [Used(Path(path), path, path, read=True) for path in ("/d/in", "/d/in/b")])


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match=r"^checkpoint: .*expected a path whose symbolic links can be"):
        check_overlaps(sinks(), [Used(tmp_path / "a", "checkpoint", "the checkpoint")])
