"""What a sink's target may have beside `publish`: all of it by deriving from `SinkTarget`, most of it without."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import taskplace.spark
from taskplace.errors import CheckpointError, Fenced, InputError
from taskplace.model.keys import read
from taskplace.spark import targets, yaml_application
from taskplace.spark.driver.directory_overlaps import Used, check_overlaps
from taskplace.spark.driver.publishing import Publisher, check_targets
from taskplace.spark.sinks import ForeachBatch, ParquetSink, SinkTarget
from taskplace.spark.targets import CommitTarget
from taskplace.spark.yaml_application import declared_topology
from taskplace.spec.nodes import Output
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


def built(*given) -> BuiltTopology:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2)
    for number, target in enumerate(given):
        rows.sink(f"out{number}", target=target)
    return topo.build()


def test_a_directory_of_a_new_sink_is_compared_with_the_others(tmp_path):
    with pytest.raises(InputError, match=r"^sinks\.out1\.target: found .*, which is inside .* sink 'out0'"):
        check_overlaps(built(ParquetSink(tmp_path), Csv(tmp_path / "csv")), [])
    with pytest.raises(InputError, match=r"^sinks\.out1\.target: found .*csv, also the target of sink"):
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
    assert (target.directory, tuple(target.reserved)) == (None, ())
    target.publish(None, 3, [])
    assert given[0].got == (3, [])


def test_a_subclass_without_publish_cannot_be_made():
    with pytest.raises(TypeError, match="publish"):
        type("Nothing", (SinkTarget,), {})()


def test_each_sink_of_taskplace_has_all_members_a_key_in_yaml_and_a_line_in_the_docs():
    pytest.importorskip("confluent_kafka")
    kafka = {"topic": "out", "servers": "nowhere:9092"}
    given: dict[str, object] = {"path": "/data/out", "foreach": "builtins:print", "kafka": kafka}
    assert set(yaml_application._TARGETS) == set(Output.__struct_fields__) == set(given)
    page, topology = ((DOCS / name).read_text(encoding="utf-8") for name in ("runtime.md", "topology.md"))
    for key, value in given.items():
        made = yaml_application._target("output.o", read(Output, {key: value}, "output.o"))
        assert isinstance(made, CommitTarget)
        assert type(made).__name__ in taskplace.spark.__all__
        assert f"`{type(made).__name__}(" in page
        assert f"{key}: " in topology.partition("\noutput:")[2].partition("```")[0]
        assert f"`{key}`" in (yaml_application.__doc__ or "")


def test_an_error_about_a_directory_has_the_path_of_its_key(tmp_path):
    from taskplace.spark.yaml_paths import YamlPaths
    from taskplace.spec.application import Settings

    section = {"sources": {"in": {"key": "k", "partitions": 2}}, "nodes": {"o": {"sink": "in"}}}
    settings = Settings.from_mapping({"application": {"id": "a"}, "topology": section})
    for target, key, path in (
        (ParquetSink(tmp_path), "path", "output.o.path"),
        (Csv(tmp_path), "csv", "output.o.csv"),
        (ForeachBatch(print), "foreach", "output.o"),
    ):
        topology = declared_topology(settings, {"o": target}).build()
        assert YamlPaths(topology, section, {"o": key}).of("sinks.o.target") == path


def test_a_publish_with_other_parameters(tmp_path):
    target = type("Target", (), {"publish": lambda self, df, batch_id: None})()
    says = r"^sinks\.out0\.target\.publish: found .*\(df, batch_id\)', expected a function of \(spark, batch"
    with pytest.raises(InputError, match=says):
        check_targets(built(target))


class Even:
    """Refuses odd numbers."""

    def check_columns(self, sink, schema) -> None:
        if "n" not in schema.names:
            raise InputError(f"sinks.{sink}.target.n", found=schema.names, expected="a column n")

    def check_rows(self, sink, rows) -> None:
        if odd := [n for n in rows["n"].to_pylist() if n % 2]:
            raise InputError(f"sinks.{sink}.n", found=odd, expected="even numbers")


class Commits(CommitTarget):
    """Keeps the commits that it gets."""

    row_check = Even()

    def __init__(self) -> None:
        self.got: list[targets.Commit] = []
        self.fail: Exception | None = None
        self.refuse: Exception | None = None
        self.outputs: list[tuple[str, targets.Output]] = []
        self.closed = 0

    def check_output(self, output) -> None:
        self.outputs.append(("check", output))

    def open_output(self, output) -> None:
        self.outputs.append(("open", output))
        if self.refuse is not None:
            raise self.refuse

    def kept_output(self):
        return {"commits": len(self.got)}

    def close(self) -> None:
        self.closed += 1

    def publish_commit(self, commit) -> None:
        if self.fail is not None:
            raise self.fail
        self.got.append(commit)


def numbers(target) -> Topology:
    topo = Topology("t")
    rows = topo.source("in", key="n", partitions=1)
    rows.process(lambda context, rows: rows, name="same").sink("out", target=target)
    return topo


def rows(*given: int) -> dict[str, pa.Table]:
    return {"in": pa.table({"n": pa.array(given, pa.int64())})}


def test_a_target_is_told_of_the_commit(world):
    target = Commits()
    placed = world.open(numbers(target))
    world.batch(placed, 0, **rows(2, 4))
    world.batch(placed, 1, **rows(6))
    first, second = target.got
    assert (first.sink, first.batch_id, second.batch_id) == ("out", 0, 1)
    assert first.checkpoint_id == second.checkpoint_id != ""
    assert len({first.checksum, second.checksum}) == 2
    assert [pq.read_table(file)["n"].to_pylist() for file in first.files] == [[2, 4]]
    again = world.open(numbers(target))
    world.batch(again, 1, **rows(6))
    assert (target.got[2].checkpoint_id, target.got[2].checksum) == (first.checkpoint_id, second.checksum)
    target.got[2].check_epoch()
    with pytest.raises(Fenced):
        first.check_epoch()


def test_a_checksum_of_a_manifest_that_is_gone_is_an_error(world):
    target = Commits()
    world.batch(world.open(numbers(target)), 0, **rows(2))
    (manifest,) = (world.folder / "checkpoint" / "manifests").glob("*.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"seal":"', b'"seal":"0'))
    with pytest.raises(CheckpointError, match=r"0000000000\.json: damaged manifest"):
        _ = target.got[0].checksum


def test_what_a_target_cannot_take_or_open_is_refused_before_the_commit(world):
    target = Commits()
    target.refuse = OSError("no right")
    placed = world.open(numbers(target))
    with pytest.raises(OSError, match="no right"):
        world.batch(placed, 0, **rows(2))
    target.refuse = None
    with pytest.raises(InputError, match=r"^sinks\.out\.n: found \[3\], expected even numbers"):
        world.batch(placed, 0, **rows(2, 3))
    assert not list((world.folder / "checkpoint" / "manifests").glob("*.json"))
    world.batch(placed, 0, **rows(2, 8))
    assert [commit.batch_id for commit in target.got] == [0]


def test_columns_that_a_target_could_not_take_are_refused_at_the_start():
    from taskplace.spark.compile.infer import _check_sink
    from taskplace.spark.processors import Facts

    (node,) = (node for node in numbers(Commits()).build().nodes if node.kind == "sink")
    _check_sink(node, Facts(columns={"n": "bigint"}), None)
    with pytest.raises(InputError, match=r"^sinks\.out\.target\.n: found \['m'\]"):
        _check_sink(node, Facts(columns={"m": "bigint"}), None)


def test_a_fence_says_nothing_of_a_target_to_repair(world):
    target = Commits()
    placed = world.open(numbers(target))
    target.fail = Fenced("another driver")
    with pytest.raises(Fenced) as fenced:
        world.batch(placed, 0, **rows(2))
    assert not hasattr(fenced.value, "__notes__")
    target.fail = OSError("full")
    with pytest.raises(OSError, match="full") as failed:
        world.batch(placed, 0, **rows(2))
    assert "repair the target" in failed.value.__notes__[0]


def test_a_target_gets_what_it_kept_with_the_last_batch(world):
    target = Commits()
    placed = world.open(numbers(target))
    world.batch(placed, 0, **rows(2, 4))
    world.batch(placed, 1, **rows(6))
    first = [(what, output.kept, output.repeated) for what, output in target.outputs]
    assert first == [("check", {}, None), ("open", {}, None)]
    for batch, repeated in ((1, 1), (2, None)):
        later = Commits()
        world.batch(world.open(numbers(later)), batch, **rows(6))
        (check, opened) = (output for _, output in later.outputs)
        assert (check.kept, check.repeated) == (opened.kept, opened.repeated) == ({"commits": 1}, repeated)
        assert (opened.checkpoint_id, opened.sink) == (target.got[0].checkpoint_id, "out")


def test_a_refused_output_does_not_fence_the_driver_in_charge(world):
    class Refusing(Commits):
        def check_output(self, output) -> None:
            raise CheckpointError("another topic")

    target = Commits()
    running = world.open(numbers(target))
    world.batch(running, 0, **rows(2))
    with pytest.raises(CheckpointError, match="another topic"):
        world.batch(world.open(numbers(Refusing())), 1, **rows(4))
    world.batch(running, 1, **rows(4))
    assert [commit.batch_id for commit in target.got] == [0, 1]


def test_a_target_is_closed_with_its_stream_and_after_an_error(world):
    target = Commits()
    placed = world.open(numbers(target))
    world.batch(placed, 0, **rows(2))
    assert target.closed == 0
    placed.close()
    assert target.closed == 1
    world.batch(placed, 1, **rows(2))
    assert target.closed == 1, "a batch opens it again"
    target.fail = OSError("full")
    with pytest.raises(OSError, match="full"):
        world.batch(placed, 2, **rows(2))
    assert target.closed == 2


def test_a_target_that_is_publishing_is_closed_at_the_end_of_the_batch(world):
    class Closing(Commits):
        def publish_commit(self, commit) -> None:
            placed.close()
            assert self.closed == 0
            super().publish_commit(commit)

    target = Closing()
    placed = world.open(numbers(target))
    world.batch(placed, 0, **rows(2))
    assert (len(target.got), target.closed) == (1, 1)


def test_a_target_that_cannot_be_closed_does_not_hide_why_the_stream_ends(world, caplog):
    class Stuck(Commits):
        def close(self) -> None:
            raise OSError("stuck")

    target = Stuck()
    target.fail = OSError("full")
    with pytest.raises(OSError, match="full"):
        world.batch(world.open(numbers(target)), 0, **rows(2))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert not any("stuck" in text for text in warnings)
    assert any("the target of sink 'out' could not be closed: OSError, " in text for text in warnings)
