"""Every kind of mistake in an application's YAML, and what a right one becomes."""

from pathlib import Path

import pytest

from taskplace.errors import ConfigError, InputError
from taskplace.spec.application import SECTIONS, YAML_APPLICATION, ChaosSettings, Settings

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
    # a section, its value, the path in the error, and what the message says
    ("application", {"class": "a:B"}, "application.id", "found nothing, expected a name"),
    ("application", {"id": "x"}, "application.class", "found nothing, expected 'module:Class'"),
    ("application", {"id": "a b", "class": "a:B"}, "application.id", "found 'a b'"),
    ("application", {"id": "..", "class": "a:B"}, "application.id", "found '..'"),
    ("application", {"id": 7, "class": "a:B"}, "application.id", "found 7"),
    ("application", {"id": "x", "class": "a.B"}, "application.class", "found 'a.B'"),
    ("application", {"id": "x", "class": "a:B", "klass": 1}, "application.klass", "did you mean 'class'?"),
    ("aplication", {}, "aplication", "did you mean 'application'?"),
    ("placment", {"num.standby.replicas": 1}, "placment", "did you mean 'placement'?"),
    ("placement", {"max.warmup.replica": 1}, "placement.max.warmup.replica", "'max.warmup.replicas'?"),
    ("placement", {"max": {"warmup.replicas": 0}}, "placement.max", "did you mean 'max.warmup.replicas'?"),
    ("report.progress", "plain", "report.progress", "an unknown key"),
    ("placement", 3, "placement", "found 3, expected a mapping"),
    ("spark", {"master": "local-cluster[3]"}, "spark.master", "found 'local-cluster[3]'"),
    ("spark", {"config": {"a": 1}}, "spark.config", "did you mean 'conf'?"),
    ("spark", {"conf": {"spark.jars": ["a"]}}, "spark.conf.spark.jars", "a string, a number or true/false"),
    ("spark", {"conf": 1}, "spark.conf", "a mapping"),
    (
        "runtime",
        {"snapshot.interval.batches": 0},
        "runtime.snapshot.interval.batches",
        "an integer of at least 1",
    ),
    ("runtime", {"snapshot.interval.batches": True}, "runtime.snapshot.interval.batches", "found true"),
    ("runtime", {"changelog.compression": "zst"}, "runtime.changelog.compression", "did you mean 'zstd'?"),
    ("runtime", {"bytes.per.task.max": 2**31}, "runtime.bytes.per.task.max", f"at most {2**31 - 1}"),
    ("runtime", {"locality.wait": 1}, "runtime.locality.wait", "did you mean 'locality.wait.ms'?"),
    ("state", {"dir": "s3://bucket/state"}, "state.dir", "no URI"),
    ("state", {"dir": "file:/state"}, "state.dir", "no URI"),
    ("state", {"dir": "dbfs:/state"}, "state.dir", "no URI"),
    ("checkpoint", {"dir": "file://nas/x"}, "checkpoint.dir", "'nas' would be another host"),
    ("checkpoint", {"dir": "s3:/bucket"}, "checkpoint.dir", "another file system"),
    ("checkpoint", {"dir": "file:///x#y"}, "checkpoint.dir", "%23"),
    ("state", {"dir": "var/demo/checkpoint"}, "state.dir", "a directory other than checkpoint.dir"),
    ("checkpoint", {"directory": "x"}, "checkpoint.directory", "expected 'dir', the only key here"),
    ("checkpoint", {"dir": 3}, "checkpoint.dir", "found 3"),
    ("placement", {"max.warmup.replicas": None}, "placement.max.warmup.replicas", "found nothing"),
    ("application", {"id": None}, "application.id", "found nothing"),
    ("chaos", {"batch": 1}, "chaos", "found {batch: 1}, expected a list"),
    ("chaos", 1, "chaos", "a list"),
    ("chaos", [1], "chaos[0]", "a mapping"),
    ("chaos", [{"batch": 1}], "chaos[0].kill", "found nothing"),
    ("chaos", [{"batch": 1, "kill": "0"}, {"batch": -1, "kill": "0"}], "chaos[1].batch", "found -1"),
    ("chaos", [{"batch": 1, "kill": "0", "when": 2}], "chaos[0].when", "an unknown key"),
    ("report", {"progress": "riche"}, "report.progress", "did you mean 'rich'?"),
    ("input", 3, "input", "expected a mapping"),
    ("topology", [], "topology", "found [], expected a mapping"),
    ("input", {1: 2}, "input.1", "a string as key"),
]


@pytest.mark.parametrize(("section", "value", "path", "says"), BAD, ids=lambda v: str(v)[:40])
def test_a_bad_value_is_one_error_with_its_path(section, value, path, says):
    with pytest.raises(ConfigError) as caught:
        settings(**{section: value})
    assert "\n" not in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("section", sorted(set(SECTIONS) - {"placement"}))
@pytest.mark.parametrize("value", [[], {}, 1.5, object()])
def test_no_value_of_a_wrong_type_gets_through(section, value):
    for key in SECTIONS[section].declared_keys():
        if key.name in ("conf", "tags", "weights") and value == {}:
            continue  # a mapping is what it takes
        document = {"application": {"id": "x", "class": "a:B"}}
        document[section] = {**document.get(section, {}), key.name: value}
        with pytest.raises(ConfigError) as caught:
            Settings.from_mapping(document)
        assert caught.value.path == f"{section}.{key.name}"


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


def test_a_missing_file_names_the_nearest(tmp_path):
    write(tmp_path, "", "flights.yaml")
    with pytest.raises(InputError, match=r"there is no such file.*did you mean '.*/flights.yaml'"):
        Settings.load(tmp_path / "flight.yaml")
    with pytest.raises(InputError, match="there is no such file"):
        Settings.load(tmp_path / "nowhere" / "flight.yaml")


def test_a_directory(tmp_path):
    with pytest.raises(InputError, match="Is a directory"):
        Settings.load(tmp_path)


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


def test_how_a_run_is_logged_and_measured():
    found = settings("report.metrics.port=9404", "report.log=json", "report.log.tasks=true").report
    assert (found.metrics_port, found.metrics_host, found.log, found.log_tasks) == (
        9404,
        "127.0.0.1",
        "json",
        True,
    )
    assert settings("report.log=none").report.log is settings().report.log is None
    assert settings().report.metrics_port is None
    with pytest.raises(
        ConfigError, match=r"^report.log: found 'jsn', expected one of text, json, none; did you mean 'json'"
    ):
        settings("report.log=jsn")
    with pytest.raises(
        ConfigError,
        match=r"^report.metrics.port: found 70000, expected an integer of at least 0, at most 65535",
    ):
        settings("report.metrics.port=70000")
    with pytest.raises(ConfigError, match=r"^report.metrics.prot: found an unknown key.*'metrics.port'"):
        settings("report.metrics.prot=1")
