"""Every kind of mistake in an application's YAML, and what a right one becomes."""

from pathlib import Path

import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spec.application import YAML_APPLICATION, ChaosSettings, Settings

APP = {"application": {"id": "demo", "class": "shop.orders:Orders"}}


def settings(*overrides, **sections):
    return Settings.from_mapping({**APP, **sections}, overrides)


def write(tmp_path, text, name="app.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


# -- what is right --------------------------------------------------------------------------------------


def test_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = settings()
    assert found.application.id == "demo"
    assert found.spark.app_name == "demo"
    assert found.spark.master is None
    assert found.checkpoint_dir == str(tmp_path / "var/demo/checkpoint")
    assert found.state_dir == tmp_path / "var/demo/state"
    assert found.runtime.snapshot_interval == 10
    assert found.runtime.compression == "lz4"
    assert found.runtime.locality_wait_ms == 30_000
    assert found.chaos == ()
    assert found.report.progress == "auto"
    assert found.placement.num_standby_replicas == 0


def test_a_whole_file(tmp_path):
    path = write(
        tmp_path,
        """
application: {id: flights, class: "examples.flights:Flights"}
spark:
  master: local-cluster[3,2,1024]
  app.name: Flights of 2013
  conf:
    spark.executor.memory: 900m
    spark.sql.adaptive.enabled: false
    spark.sql.shuffle.partitions: 12
checkpoint: {dir: "file:///bucket/flights"}
state: {dir: /var/lib/flights}
placement:
  num.standby.replicas: 1
  acceptable.recovery.lag: 0
runtime:
  compression: none
  snapshot.interval: 5
input: {dir: in, nested: {a: [1, 2]}}
output: {dir: out}
chaos:
  - {batch: 10, kill: executor-with-most-active}
  - {batch: 12, kill: 1}
report: {progress: plain}
""",
    )
    found = Settings.load(path)
    assert found.spark.conf == {
        "spark.executor.memory": "900m",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "12",
    }
    assert found.spark.app_name == "Flights of 2013"
    assert found.checkpoint_dir == "file:///bucket/flights"
    assert found.state_dir == Path("/var/lib/flights")
    assert found.placement.num_standby_replicas == 1
    assert found.placement.acceptable_recovery_lag == 0
    assert found.runtime.compression is None
    assert found.input == {"dir": "in", "nested": {"a": [1, 2]}}
    assert found.chaos == (ChaosSettings(10, "executor-with-most-active"), ChaosSettings(12, "1"))
    assert found.report.progress == "plain"


def test_overrides_win_and_are_yaml():
    found = settings(
        "placement.num.standby.replicas=2",
        "input.dir=/elsewhere",
        "input.files=3",
        "spark.conf.spark.executor.memory=1g",
        "chaos=[]",
        "report.progress=none",
        "input.url=a=b",
        placement={"num.standby.replicas": 1},
        chaos=[{"batch": 1, "kill": "0"}],
        input={"dir": "here"},
    )
    assert found.placement.num_standby_replicas == 2
    assert found.input == {"dir": "/elsewhere", "files": 3, "url": "a=b"}
    assert found.spark.conf == {"spark.executor.memory": "1g"}
    assert found.chaos == ()
    assert found.report.progress == "none"


def test_overrides_reach_into_free_sections_and_leave_the_file_as_it_is():
    shared = {"partitions": 4}
    topology = {
        "sources": {"a": shared, "b": shared, "x.y": {"key": "k"}, "z": None},
        "nodes": [{"process": "a"}],
    }
    found = settings(
        "topology.sources.a.partitions=8",
        "topology.sources.x.y.key=[k, l]",
        "topology.sources.z.partitions=2",
        "topology.stores={s: {logged: false}}",
        "input.a.options.kafka.group.id=g",
        topology=topology,
        input={"a": {"format": "kafka"}},
    )
    assert found.topology["sources"] == {
        "a": {"partitions": 8},
        "b": {"partitions": 4},
        "x.y": {"key": ["k", "l"]},
        "z": {"partitions": 2},
    }
    assert found.topology["stores"] == {"s": {"logged": False}}
    assert found.input == {"a": {"format": "kafka", "options": {"kafka.group.id": "g"}}}
    assert shared == {"partitions": 4}


def test_a_topology_needs_no_class():
    topology = {"sources": {"a": {"partitions": 4}}}
    found = Settings.from_mapping({"application": {"id": "x"}, "topology": topology})
    assert (found.application.cls, found.topology) == (YAML_APPLICATION, topology)
    assert settings(topology=topology).application.cls == "shop.orders:Orders"
    assert settings(topology=None).topology == {}


def test_empty_sections_say_nothing():
    assert settings(runtime=None, input=None, chaos=None, placement=None, spark={"conf": None}) == settings()


# -- what is wrong --------------------------------------------------------------------------------------

BAD = [
    # a section, its value, and the path in the error; `test_declared_fields` has each key by itself
    ("application", {"id": "a b", "class": "a:B"}, "application.id"),
    ("application", {"id": "..", "class": "a:B"}, "application.id"),
    ("application", {"id": "x"}, "application.class"),
    ("application", {"id": "x", "class": "a.B"}, "application.class"),
    ("aplication", {}, "aplication"),
    ("report.progress", "plain", "report.progress"),
    ("placement", {"max": {"warmup.replicas": 0}}, "placement.max"),
    ("placement", 3, "placement"),
    ("placement", {"max.warmup.replicas": None}, "placement.max.warmup.replicas"),
    ("spark", {"master": "local-cluster[3]"}, "spark.master"),
    ("spark", {"conf": {"spark.jars": ["a"]}}, "spark.conf.spark.jars"),
    ("runtime", {"snapshot.interval.batches": 0}, "runtime.snapshot.interval.batches"),
    ("runtime", {"snapshot.interval.batches": True}, "runtime.snapshot.interval.batches"),
    ("runtime", {"bytes.per.task.max": 2**31}, "runtime.bytes.per.task.max"),
    ("state", {"dir": "s3://bucket/state"}, "state.dir"),
    ("state", {"dir": "file:/state"}, "state.dir"),
    ("state", {"dir": "var/demo/checkpoint"}, "state.dir"),
    ("checkpoint", {"dir": "file://nas/x"}, "checkpoint.dir"),
    ("checkpoint", {"dir": "s3:/bucket"}, "checkpoint.dir"),
    ("checkpoint", {"dir": "file:///x#y"}, "checkpoint.dir"),
    ("report", {"log": "jsn"}, "report.log"),
    ("report", {"metrics.port": 70_000}, "report.metrics.port"),
    ("chaos", {"batch": 1}, "chaos"),
    ("chaos", [1], "chaos[0]"),
    ("chaos", [{"batch": 1, "kill": "0"}, {"batch": -1, "kill": "0"}], "chaos[1].batch"),
    ("input", 3, "input"),
    ("topology", [], "topology"),
    ("input", {1: 2}, "input.1"),
]


@pytest.mark.parametrize(("section", "value", "path"), BAD, ids=lambda v: str(v)[:40])
def test_a_bad_value_is_one_error_with_its_path(section, value, path):
    with pytest.raises(ConfigError) as caught:
        settings(**{section: value})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.path == path


@pytest.mark.parametrize("override", ["", "report.progress", "=plain"])
def test_an_override_without_key_or_value(override):
    with pytest.raises(ConfigError, match=r"^--set: .*key=value"):
        settings(override)


def test_an_override_with_a_bad_value_names_its_path():
    with pytest.raises(ConfigError, match=r"^placement\.num\.standby\.replicas: found -1"):
        settings("placement.num.standby.replicas=-1")
    with pytest.raises(ConfigError, match=r"^input\.x: found '\[1', expected a YAML value"):
        settings("input.x=[1")


# -- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: [1", ":1: ", "expected YAML"),
        ("application:\n  id: x\n  id: y\n", ":3: ", "the key 'id' given twice"),
        ("- 1\n", ": ", "found 'list', expected a mapping"),
        ("", ": ", "found 'an empty file'"),
        ("!!python/object:os.system {}", ":1: ", "expected YAML"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path, text, line, says):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        Settings.load(path)
    assert f"{path}{line}" in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        Settings.load(path)


def test_yaml_merge_keys_work(tmp_path):
    path = write(
        tmp_path,
        "application: {id: x, class: 'a:B'}\n"
        "input: &base {dir: here, files: 2}\n"
        "output:\n  <<: *base\n  dir: there\n",
    )
    assert Settings.load(path).output == {"dir": "there", "files": 2}
