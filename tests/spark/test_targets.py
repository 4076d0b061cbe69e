"""What a sink's target may have beside `publish`: all of it by deriving from `SinkTarget`, most of it without."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import taskplace.spark
from taskplace.errors import ConfigError, InputError
from taskplace.spark import sinks, targets, yaml_application
from taskplace.spark.driver.directory_overlaps import Used, check_overlaps
from taskplace.spark.driver.publishing import Publisher, check_targets
from taskplace.spark.sinks import ForeachBatch, ParquetSink, SinkTarget
from taskplace.spark.yaml_application import OUTPUT, declared_topology
from topology import BuiltTopology, Topology

DOCS = Path(__file__).parents[2] / "docs"


class Csv(SinkTarget):
    """A sink of a user that writes to a directory."""

    def __init__(self, where: Path) -> None:
        self._where = where

    @property
    def directory(self) -> Path:
        return self._where

    def publish(self, spark, batch_id, files) -> None:
        raise NotImplementedError


class Bare:
    """An object with `publish` alone, and with names that mean something else to it."""

    directory = "/data"
    holds = "a lock"

    def publish(self, spark, batch_id, files) -> None:
        self.got = batch_id, files


class Told(Bare):
    reserved = ("taken",)

    def __init__(self) -> None:
        self.calls: list[str] = []

    def probe(self) -> None:
        self.calls.append("probe")

    def check(self, checkpoint_id) -> None:
        self.calls.append(f"check {checkpoint_id}")

    def bind(self, checkpoint_id) -> None:
        self.calls.append(f"bind {checkpoint_id}")


def built(*given) -> BuiltTopology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    for number, target in enumerate(given):
        rows.sink(f"out{number}", target=target)
    return topo.build()


def test_a_directory_of_a_new_sink_is_compared_with_the_others(tmp_path):
    with pytest.raises(InputError, match=r"^sinks\.out1\.target: found .*, which is inside .* sink 'out0'"):
        check_overlaps(built(ParquetSink(tmp_path), Csv(tmp_path / "csv")), [])
    with pytest.raises(
        InputError, match=r"^sinks\.out0\.target: found .*, which contains .*, the checkpoint"
    ):
        check_overlaps(built(Csv(tmp_path)), [Used(tmp_path / "checkpoint", "checkpoint", "the checkpoint")])
    with pytest.raises(
        InputError, match=r"^sinks\.out1\.target: found .*csv, also the target of sink 'out0'"
    ):
        check_targets(built(Csv(tmp_path / "csv"), Csv(tmp_path / "x" / ".." / "csv")))


def test_publish_is_all_that_a_target_needs(tmp_path):
    given = Bare(), Bare()
    topology = built(*given)
    check_overlaps(topology, [Used(Path("/data"), "checkpoint", "the checkpoint")])
    publisher = Publisher(tmp_path, topology)
    publisher.probe()
    publisher.check("id")
    publisher.bind("id")
    target = targets.of(given[0])
    assert (target.directory, target.holds(1), tuple(target.reserved)) == (None, False, ())
    target.publish(None, 3, [])
    assert given[0].got == (3, [])


def test_a_target_is_told_by_the_members_that_it_has(tmp_path):
    target = Told()
    publisher = Publisher(tmp_path, built(target))
    publisher.probe()
    publisher.check("id")
    publisher.bind("id")
    assert target.calls == ["probe", "check id", "bind id"]
    assert targets.of(target).reserved == ("taken",)


def test_a_subclass_without_publish_cannot_be_made():
    with pytest.raises(TypeError, match="publish"):
        type("Nothing", (SinkTarget,), {})()


def made_here() -> set[type]:
    return {
        kind
        for _, kind in inspect.getmembers(sinks, inspect.isclass)
        if hasattr(kind, "publish") and kind.__module__ == sinks.__name__
    }


def test_each_sink_of_taskplace_has_all_members_a_key_in_yaml_and_a_line_in_the_docs():
    given = {"path": "/data/out", "foreach": "builtins:print"}
    assert set(yaml_application._TARGETS) == set(OUTPUT), "dotted_keys.OUTPUT has the keys of _TARGETS"
    assert set(given) == set(OUTPUT), "this test has no value for a key of yaml_application._TARGETS"
    made = {key: yaml_application._target("output.o", {key: value}) for key, value in given.items()}
    assert {type(target) for target in made.values()} == made_here() == {ParquetSink, ForeachBatch}
    assert all(issubclass(kind, SinkTarget) for kind in made_here())
    assert {kind.__name__ for kind in made_here()} <= set(taskplace.spark.__all__)
    page = (DOCS / "runtime.md").read_text(encoding="utf-8")
    assert [kind for kind in made_here() if f"`{kind.__name__}(" not in page] == []
    page = (DOCS / "topology.md").read_text(encoding="utf-8")
    assert [
        key for key in OUTPUT if f"{key}: " not in page.partition("\noutput:")[2].partition("```")[0]
    ] == []
    assert [key for key in OUTPUT if f"`{key}`" not in (yaml_application.__doc__ or "")] == []


def test_an_error_about_a_directory_has_the_path_of_its_key(tmp_path):
    from taskplace.settings import Settings
    from taskplace.spark.yaml_paths import YamlPaths

    section = {"sources": {"in": {"key": "k", "partitions": 2}}, "nodes": {"o": {"sink": "in"}}}
    settings = Settings.from_mapping({"application": {"id": "a"}, "topology": section})
    for target, key, path in (
        (ParquetSink(tmp_path), "path", "output.o.path"),
        (Csv(tmp_path), "csv", "output.o.csv"),
        (ForeachBatch(print), "foreach", "output.o"),
    ):
        topology = declared_topology(settings, {"o": target}).build()
        assert YamlPaths(topology, section, {"o": {key: "x"}}).of("sinks.o.target") == path


def test_an_unknown_key_of_output_has_the_nearest_one():
    with pytest.raises(ConfigError, match=r"^output\.o\.pth: .*did you mean 'path'"):
        yaml_application._target("output.o", {"pth": "/data"})


@pytest.mark.parametrize(
    ("member", "function", "says"),
    [
        (
            "publish",
            lambda self, df, batch_id: None,
            r"\(df, batch_id\)', expected a function of \(spark, batch_id, files\)",
        ),
        ("bind", lambda self: None, r"\(\)', expected a function of \(checkpoint_id\)"),
        ("check", lambda self: None, r"\(\)', expected a function of \(checkpoint_id\)"),
        ("probe", lambda self, path: None, r"\(path\)', expected a function of \(\)"),
    ],
)
def test_a_method_with_other_parameters(member, function, says):
    class Plain:
        def publish(self, spark, batch_id, files): ...

    target = type("Target", (Plain,), {member: function})()
    with pytest.raises(
        InputError, match=rf"^sinks\.[a-z0-9]+\.target\.{member}: found 'a function of {says}"
    ):
        check_targets(built(target))
