"""`taskplace config`: every value with its origin, what it replaces and what is ignored; no Spark is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from taskplace.cli import main
from taskplace.model.schema import schema
from taskplace.spec.application import SECTIONS, Settings
from tests.support.pages import ROOT

FILE = """\
application:
  id: shop
  class: shop:Shop
spark:
  master: local[2]
  conf:
    spark.executor.memory: 900m
    spark.scheduler.mode: FIFO
    fs.s3a.secret.key: hunter2
placement:
  num.standby.replicas: '1'
  max.warmup.replicas: 3
runtime:
  snapshot.interval.batches: 5
  tags:
    host-1: {zone: a}
checkpoint: {dir: var/here}
input:
  orders:
    kafka:
      topic: orders
      servers_env: SHOP_SERVERS
      options: {sasl.password: hunter2}
output: {totals: {path: /data}}
chaos:
- {batch: 4, kill: 2}
"""
Entries = dict[str, dict[str, Any]]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "shop.yaml").write_text(FILE)
    return tmp_path


def read(
    capsys: pytest.CaptureFixture[str], *arguments: str, file: str = "shop.yaml"
) -> tuple[Entries, Entries]:
    """Return values and Spark properties by their paths."""
    assert main(["config", file, "--output", "json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema("config"), cls=jsonschema.Draft202012Validator)
    by_path = [{one["key"]: one for one in found[part]} for part in ("values", "spark")]
    assert [len(part) for part in by_path] == [len(found["values"]), len(found["spark"])]
    return by_path[0], by_path[1]


def said(entry: dict[str, Any]) -> tuple[Any, str, str]:
    return entry["value"], entry["origin"]["kind"], entry["origin"]["text"]


def test_values_of_the_file_have_their_lines(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, _ = read(capsys)
    assert said(values["application.id"]) == ("shop", "file", "shop.yaml:2")
    assert said(values["placement.num.standby.replicas"]) == (1, "file", "shop.yaml:11")  # as it is read
    assert said(values["runtime.tags.host-1.zone"]) == ("a", "file", "shop.yaml:16")
    assert said(values["output.totals.path"]) == ("/data", "file", "shop.yaml:24")
    assert said(values["chaos[0].kill"]) == (2, "file", "shop.yaml:26")
    assert said(values["runtime.snapshot.interval"]) == (5, "file", "shop.yaml:14")
    assert values["runtime.snapshot.interval"]["note"] == "written as snapshot.interval.batches"
    assert said(values["checkpoint.dir"]) == (str(shop / "var/here"), "file", "shop.yaml:17")
    assert said(values["state.dir"]) == (
        str(shop / "var/shop/state"),
        "derived",
        "from application.id and the current directory",
    )
    assert said(values["spark.app.name"]) == ("shop", "derived", "from application.id")


def test_set_replaces_what_the_file_has(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "placement.max.warmup.replicas"
    values, _ = read(capsys, "--set", f"{key}=4", "--set", f"{key}=5", "--set", "report.log=text")
    assert said(values[key]) == (5, "--set", "--set")
    assert [(one["value"], one["origin"]["text"]) for one in values[key]["replaces"]] == [
        (4, "--set"),
        (3, "shop.yaml:12"),
    ]
    assert values["report.log"]["replaces"] == []
    override = ["--set", "runtime.tags.host-1.rack=r1", "--set", "input.orders.kafka.topic=other"]
    values, _ = read(capsys, *override)
    assert said(values["runtime.tags.host-1.rack"]) == ("r1", "--set", "--set")
    assert said(values["runtime.tags.host-1.zone"]) == ("a", "file", "shop.yaml:16")
    assert said(values["input.orders.kafka.topic"]) == ("other", "--set", "--set")
    assert values["input.orders.kafka.topic"]["replaces"][0]["value"] == "orders"
    values, _ = read(capsys, "--set", "placement={max.warmup.replicas: 7}")
    assert said(values["placement.max.warmup.replicas"]) == (7, "--set", "--set")
    assert said(values["placement.num.standby.replicas"]) == (1, "file", "shop.yaml:11")


def test_defaults_say_whose_they_are(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few, _ = read(capsys)
    values, _ = read(capsys, "--all")
    assert not [path for path, one in few.items() if one["origin"]["kind"] == "default"]
    assert said(values["placement.acceptable.recovery.lag"]) == (10_000, "default", "Kafka's default")
    assert said(values["placement.balance.factor"]) == (1, "default", "taskplace's default")
    assert said(values["runtime.locality.wait.ms"]) == (30_000, "default", "taskplace's default")
    missing = [
        f"{name}.{key}"
        for name, section in SECTIONS.items()
        for key in section.known_keys()
        if f"{name}.{key}" not in values and f"{name}.{key}" not in ("spark.conf", "runtime.tags")
    ]
    assert missing == []


def test_the_values_are_those_of_the_settings(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, _ = read(capsys, "--all")
    settings = Settings.load("shop.yaml")
    for name in ("placement", "report"):
        for key, value in getattr(settings, name).to_properties().items():
            assert values[f"{name}.{key}"]["value"] == value


def test_variables_of_the_environment(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_SERVERS", "host:9092")
    values, _ = read(capsys)
    servers = values["input.orders.kafka.servers"]
    assert said(servers) == ("host:9092", "environment", "environment SHOP_SERVERS")
    monkeypatch.delenv("SHOP_SERVERS")
    values, _ = read(capsys)
    assert values["input.orders.kafka.servers"]["value"] is None
    assert "not set" in values["input.orders.kafka.servers"]["note"]


def test_a_variable_that_is_no_text_is_shown_as_it_is(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values, _ = read(capsys, "--set", "input.orders.kafka.servers_env=5")
    assert values["input.orders.kafka.servers_env"]["value"] == 5
    assert "input.orders.kafka.servers" not in values


def test_secrets_are_hidden(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    override = ["--set", "spark.conf.fs.s3a.secret.key=hunter2more"]
    for output in ("text", "json"):
        assert main(["config", "shop.yaml", "--all", "--output", output, *override]) == 0
        out = capsys.readouterr().out
        assert "hunter2" not in out
        assert out.count("(hidden)") == 3  # also the secret that --set replaced


def test_spark_properties_have_their_origins(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, spark = read(capsys, "--set", "spark.conf.spark.executor.memory=2g")
    assert said(spark["spark.app.name"]) == ("shop", "derived", "from application.id")
    assert said(spark["spark.master"]) == ("local[2]", "derived", "from spark.master")
    assert said(spark["spark.executor.memory"]) == ("2g", "--set", "--set")
    assert spark["spark.executor.memory"]["replaces"][0]["value"] == "900m"
    mode = spark["spark.scheduler.mode"]
    assert said(mode) == ("FIFO", "file", "shop.yaml:8")
    assert [(one["value"], one["origin"]["kind"]) for one in mode["replaces"]] == [("FAIR", "taskplace")]
    assert spark["spark.executorEnv.PYTHONPATH"]["value"] == str(shop)
    assert said(spark["spark.locality.wait"]) == ("30000ms", "derived", "from runtime.locality.wait.ms")
    assert spark["spark.sql.adaptive.enabled"]["origin"]["text"] == "taskplace: while a batch is planned"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        (["report.log.tasks=true"], "report.log.tasks"),
        ([], "runtime.tags.host-1.zone"),
        (["placement.rack.aware.assignment.traffic_cost=5"], "placement.rack.aware.assignment.traffic_cost"),
        (["placement.balance.factor=2"], "placement.balance.factor"),
        (["placement.acceptable.recovery.lag=9223372036854775807"], "placement.max.warmup.replicas"),
        (["report.metrics.host=0.0.0.0"], "report.metrics.host"),
        (["spark.conf.spark.locality.wait=5s", "runtime.locality.wait.ms=9"], "runtime.locality.wait.ms"),
        (["spark.conf.spark.master=local[4]"], "spark.master"),
        (["spark.conf.spark.app.name=x", "spark.app.name=y"], "spark.app.name"),
    ],
)
def test_what_has_no_effect_is_named(
    override: list[str], key: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [part for one in override for part in ("--set", one)]
    values, _ = read(capsys, *sets)
    assert values[key]["ignored"]
    assert main(["config", "shop.yaml", *sets]) == 0
    out = capsys.readouterr().out
    assert f"IGNORED: {values[key]['ignored']}" in out
    without, doctor, _ = out.splitlines()[-3:]
    assert key in without.partition("ignored: ")[2].split(", ")
    assert doctor == "`taskplace doctor shop.yaml` says what to do about it"


def test_what_has_an_effect_is_not_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    used = ["report.log=text", "report.log.tasks=true", "placement.rack.aware.assignment.tags=zone"]
    values, spark = read(capsys, *[part for one in used for part in ("--set", one)], "--all")
    assert [path for path, one in {**values, **spark}.items() if one["ignored"]] == []


def test_a_property_of_spark_that_has_no_effect_is_named(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "spark.sql.streaming.stateStore.providerClass"
    _, spark = read(capsys, "--set", f"spark.conf.{name}=x")
    assert "does not use Spark's state stores" in spark[name]["ignored"]
    _, spark = read(capsys, "--set", "spark.conf.spark.speculaton=true")
    assert "has no property of this name" in spark["spark.speculaton"]["ignored"]


@pytest.mark.parametrize("file", sorted((ROOT / "conf").glob("*flights.yaml")), ids=lambda path: path.name)
def test_it_needs_no_spark(file: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'pyarrow', 'lmdb', 'py4j')));"
        "from taskplace.cli import main; sys.exit(main(['config', sys.argv[1], '--all']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "spark.scheduler.mode" in done.stdout


def test_references_to_the_environment_are_shown_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ID", "MASTER", "OUT", "REPLICAS", "PATH_OF", "LOG")
    for name, value in zip(
        names, ("put-in", "local[4711]", "/put-in", "4711", "/put-in/a", "text"), strict=True
    ):
        monkeypatch.setenv(name, value)
    text = (
        FILE.replace("id: shop", "id: ${ID}").replace("local[2]", "${MASTER}").replace("'1'", "${REPLICAS}")
    )
    text = text.replace("{dir: var/here}", "{dir: '${OUT}/$${x}'}").replace("/data", "'${PATH_OF}'")
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(text)
    override = ["--set", "report.log=${LOG}", "--set", "runtime.tags.host-1.zone=${ID}"]
    values, spark = read(capsys, "--all", *override)
    assert values["checkpoint.dir"]["value"] == "${OUT}/$${x}"
    assert values["placement.num.standby.replicas"]["value"] == "${REPLICAS}"
    assert values["output.totals.path"]["value"] == "${PATH_OF}"
    assert said(values["report.log"]) == ("${LOG}", "--set", "--set")
    assert values["runtime.tags.host-1.zone"]["value"] == "${ID}"
    assert (spark["spark.app.name"]["value"], spark["spark.master"]["value"]) == ("${ID}", "${MASTER}")
    for output in ("text", "json"):
        assert main(["config", "shop.yaml", "--all", "--output", output, *override]) == 0
        shown = capsys.readouterr().out
        assert "put-in" not in shown and "4711" not in shown
