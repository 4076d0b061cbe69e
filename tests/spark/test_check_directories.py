"""A sink's directory that lies in another one, or around it, is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spark import ForeachBatch, ParquetSink
from taskplace.spark.driver.directory_overlaps import Used, check_overlaps, overlap
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from topology import BuiltTopology, Topology


def sinks(*targets) -> BuiltTopology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    for number, target in enumerate(targets):
        rows.sink(f"out{number}", target=ParquetSink(target) if isinstance(target, Path) else target)
    return topo.build()


@pytest.mark.parametrize(
    ("one", "other", "says"), [("a", "a/b", "is inside"), ("a/b/c", "a", "contains"), ("a", "a", "is")]
)
def test_two_sinks(tmp_path, one, other, says):
    with pytest.raises(
        InputError, match=rf"^sinks\.out1\.target: found .*, which {says} .*, the directory of sink 'out0'"
    ):
        check_overlaps(sinks(tmp_path / one, tmp_path / other), [])


def test_directories_beside_each_other(tmp_path):
    others = [Used(tmp_path / "x" / name, name, f"the {name}") for name in ("checkpoint", "state_dir")]
    check_overlaps(
        sinks(tmp_path / "a", tmp_path / "ab", tmp_path / "x/out", ForeachBatch(print), None), others
    )


@pytest.mark.parametrize("place", ["cp", "cp/in/it", "."])
def test_the_checkpoint(tmp_path, place):
    with pytest.raises(
        InputError, match=r"^sinks\.out0\.target: found .*, the checkpoint', expected a separate directory"
    ):
        check_overlaps(sinks(tmp_path / place), [Used(tmp_path / "cp", "checkpoint", "the checkpoint")])


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for one, other in (("link/out", "real"), ("real/out", "link")):
        with pytest.raises(InputError, match="is inside"):
            check_overlaps(sinks(tmp_path / one), [Used(tmp_path / other, "state_dir", "the state_dir")])
    with pytest.raises(InputError, match="is matched by"):
        check_overlaps(
            sinks(tmp_path / "real/out"), [Used(tmp_path / "link" / "*", "in", "a source", read=True)]
        )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/d/out", True),
        ("/d/o*", True),
        ("/d/*.csv", False),
        ("/d/{in,out}/x", True),
        ("/d/[ab]*", False),
        ("/*", True),
    ],
)
def test_patterns_of_sources(pattern, expected):
    assert overlap(Path("/d/out"), Path(pattern), other=True) is expected
    assert overlap(Path(pattern), Path("/d/out"), mine=True) is expected
    assert overlap(Path("/d/out"), Path(pattern)) is (pattern == "/d/out")  # names with these letters


APP = {
    "application": {"id": "a"},
    "topology": {
        "sources": {"in": {"key": "k", "partitions": 2}},
        "nodes": {"out": {"sink": "in"}, "more": {"sink": "in"}},
    },
    "input": {"in": {"format": "csv", "path": "/nowhere/in", "schema": "k string"}},
    "output": {"out": {"path": "/nowhere/out"}, "more": {"path": "/nowhere/more"}},
    "checkpoint": {"dir": "/nowhere/checkpoint"},
    "state": {"dir": "/nowhere/state"},
}


@pytest.mark.parametrize(
    ("place", "whose"),
    [
        ("/nowhere/out/more", "the directory of sink 'out'[\"]"),
        ("/nowhere/in/more", "the input directory of input.in"),
        ("/nowhere/checkpoint/more", r"the checkpoint \(checkpoint\.dir\)"),
        ("file:///nowhere/state", r"the state directory \(state\.dir\)"),
    ],
)
def test_in_yaml(place, whose):
    YamlApplication(Settings.from_mapping(APP))
    with pytest.raises(
        ConfigError, match=rf"^output\.more\.path: found .*, {whose}.?, expected a separate directory"
    ):
        YamlApplication(Settings.from_mapping(APP, [f"output.more.path={place}"]))


def test_a_source_elsewhere():
    YamlApplication(Settings.from_mapping(APP, ["input.in.path=s3://nowhere/more"]))
    with pytest.raises(ConfigError, match=r"^output\.(out|more)\.path: .*the input directory of input\.in"):
        YamlApplication(Settings.from_mapping(APP, ["input.in.path=/nowhere/{out,more}*"]))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            ["checkpoint.dir=/nowhere/cp*"],
            r"checkpoint\.dir: found '/nowhere/cp\*', expected a path without \* \?",
        ),
        (
            ["state.dir=/nowhere/checkpoint/state"],
            r"state\.dir: found '/nowhere/checkpoint/state, which is inside /nowhere/checkpoint, the checkpoint \(ch",
        ),
        (
            ["checkpoint.dir=/nowhere/state/cp"],
            r"state\.dir: found '/nowhere/state, which contains /nowhere/state/cp",
        ),
        (["input.in.path=/nowhere"], r"input\.in\.path: found '/nowhere, which contains /nowhere/checkpoint"),
        (
            ["input.in.path=/nowhere/state/x"],
            r"input\.in\.path: found .* is inside /nowhere/state, the state direc",
        ),
        (
            ["input.in.path=/nowhere/*"],
            r"input\.in\.path: found '/nowhere/\*, which matches /nowhere/checkpoint",
        ),
    ],
)
def test_any_two_directories_in_yaml(changes, says):
    with pytest.raises(InputError, match=f"^{says}"):
        YamlApplication(Settings.from_mapping(APP, changes))


def test_two_inputs_may_share_a_directory():
    used = [Used(Path(path), name, name, read=True) for name, path in (("a", "/d/in"), ("b", "/d/in/b"))]
    check_overlaps(sinks(), used)


def test_links_that_lead_nowhere(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(
        InputError, match=r"^checkpoint: found .*expected a path whose symbolic links can be followed"
    ):
        check_overlaps(sinks(), [Used(tmp_path / "a", "checkpoint", "the checkpoint")])
