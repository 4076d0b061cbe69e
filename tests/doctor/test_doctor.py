"""Each rule fires on what it finds, and not on a sound application; a remedy to paste ends the finding."""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from taskplace.doctor import (
    RULES,
    Rule,
    Severity,
    SparkProperties,
    StoreFacts,
    diagnose,
    read_properties,
)
from taskplace.doctor.rules import Found, misspelled
from taskplace.errors import InputError
from taskplace.spec.application import SparkSettings
from tests.support.sound_application import PROPERTIES, SOUND, facts, topology

BY_ID = {rule.id: rule for rule in RULES}
ADVICE = Severity.ADVICE
NO_LIMIT = f"placement.acceptable.recovery.lag={2**63 - 1}"
PROBING, WARMUPS = "placement.probing.rebalance.interval.ms", "placement.max.warmup.replicas"
SLOW = (f"{WARMUPS}=2", f"{PROBING}=600000")
RACK = "placement.rack.aware.assignment"
ONCE = "topology.nodes.once.options"
ORDERS, TOTALS = "input.orders.options", "output.totals.kafka"
WAIT, IDLE = "spark.locality.wait", "spark.dynamicAllocation.executorIdleTimeout"
OVERHEAD, STORES = "spark.executor.memoryOverhead", "spark.sql.streaming.stateStore.providerClass"
LOCATION = "spark.sql.streaming.checkpointLocation"


class Case(NamedTuple):
    """Changes of the sound application: a finding of a rule at `path` that contains `says`; "" for none."""

    rule: str
    path: str
    overrides: tuple[str, ...]
    says: str
    severity: Severity | None
    more: dict[str, Any]


def fires(
    rule: str, path: str, *overrides: str, says: str = "", severity: Severity | None = None, **more: Any
) -> Case:
    return Case(rule, path, overrides, says, severity, more)


def quiet(rule: str, *overrides: str, **more: Any) -> Case:
    return Case(rule, "", overrides, "", None, more)


def conf(key: str, value: object) -> str:
    return f"spark.conf.{key}={value}"


def checkpoint(**fields: Any) -> dict[str, Any]:
    return {"checkpoint": SOUND["checkpoint"]._replace(**fields)}


def endless(path: str = ONCE, processor: str = "deduplicate") -> dict[str, Any]:
    return {"stores": (StoreFacts("seen", path, processor, None),)}


YARN, DYNAMIC = "spark.master=yarn", conf("spark.dynamicAllocation.enabled", "true")
FIRING = [
    fires("start-refused", "runtime.weights.9_9", says="an unknown", refused="runtime.weights.9_9: found an unknown"),
    fires("driver-runs", "checkpoint.dir", says="driver 3", **checkpoint(driver="driver 3 wrote its status")),
    fires("checkpoint-damaged", "/shared/shop/checkpoint", says="s, and 1 more", **checkpoint(damaged=("s", "b"))),
    fires("checkpoint-of-another-application", "checkpoint.dir", says="m; n", **checkpoint(refused=("m", "n"))),
    fires("directory-not-kept", "state.dir", "state.dir=/tmp/state", says="/tmp/state"),
    fires("directory-not-kept", "state.dir", "state.dir=/fast/a", file_systems={"/": "ext4", "/fast": "tmpfs"}),
    fires("directory-not-kept", "state.dir", conf("spark.local.dir", "/a,/disk/shop")),
    fires("directory-not-kept", "checkpoint.dir", "checkpoint.dir=/dev/shm/checkpoint"),
    fires("directory-not-kept", "checkpoint.dir", "checkpoint.dir=file:///var/tmp/c", says="/var/tmp/c"),
    fires("state-on-network", "state.dir", "state.dir=/shared/state", says="nfs4"),
    fires("checkpoint-on-one-host", "checkpoint.dir", "checkpoint.dir=/disk/c", says="xfs, and the master spark"),
    fires("state-without-end", f"{ONCE}.ttl", says="'seen' has no ttl", **endless()),
    fires("state-without-end", f"{ONCE}.ttl", severity=ADVICE, without=("spark.trigger.interval",), **endless()),
    fires("state-without-end", f"{ONCE}.ttl", severity=ADVICE, **endless(processor="")),
    fires("state-without-end", "store 'seen'", severity=ADVICE, **endless("store 'seen'", "")),
    fires("state-without-end", f"{ONCE}.ttl", topology=topology(12, spare="no event time"), **endless()),
    fires("warm-ups-slow", WARMUPS, *SLOW, "placement.num.standby.replicas=0", topology=topology(96),
          says="2 warm-ups per 10 min: 96 tasks need 8 h"),
    fires("warm-ups-slow", WARMUPS, *SLOW, severity=ADVICE, says="12 tasks with 1 standby, 24 copies, need 2 h"),
    fires("warm-ups-slow", WARMUPS, *SLOW, says="2000 tasks", topology=topology(2000)),
    fires("warm-ups-slow", WARMUPS, f"{PROBING}=7200000", says="per 2 h"),
    fires("tag-without-values", f"{RACK}.tags", f"{RACK}.tags=[zone, rack]", says="rack"),
    fires("tag-without-values", f"{RACK}.tags", "runtime.tags={}", says="zone"),
    fires("records-at-risk", f"{ORDERS}.failOnDataLoss", f"{ORDERS}.failOnDataLoss=false"),
    fires("records-at-risk", f"{ORDERS}.minPartitions", f"{ORDERS}.minPartitions=48", says="48"),
    fires("records-at-risk", f"{ORDERS}.maxRecordsPerPartition", f"{ORDERS}.maxRecordsPerPartition=9"),
    fires("records-at-risk", f"{ORDERS}.kafka.isolation.level",
          f"{ORDERS}.kafka.isolation.level=read_uncommitted", severity=ADVICE),
    fires("records-at-risk", f"{TOTALS}.changed_topics", f"{TOTALS}.changed_topics=go-on"),
    fires("records-at-risk", "input.clicks.kafka.changed_topics", "input.clicks.kafka.changed_topics=go-on"),
    fires("keys-unchecked", "topology.sources.orders.options.key_bytes",
          topology=topology(partition_column="partition")),
    *(
        fires("secret-in-plain-text", path, f"{path}=hunter2", says="(hidden)")
        for path in (
            "spark.conf.spark.hadoop.fs.s3a.secret.key",
            f"{ORDERS}.kafka.ssl.key.password",
            f"{TOTALS}.options.sasl.password",
        )
    ),
    fires("secret-in-plain-text", "spark.conf.spark.executorEnv.URL",
          conf("spark.executorEnv.URL", "jdbc://me:hunter2@host/db"), says="(hidden)"),
    fires("locality-wait-short", "runtime.locality.wait.ms", "runtime.locality.wait.ms=500", says="0.5 s"),
    fires("locality-wait-short", f"spark.conf.{WAIT}", conf(WAIT, "500ms"), says="0.5 s"),
    fires("locality-wait-short", f"spark.conf.{WAIT}.process", conf(f"{WAIT}.process", 0)),
    fires("locality-wait-short", f"{PROPERTIES}: {WAIT}", says="1 s", properties={WAIT: "1s"}),
    fires("speculation", "spark.conf.spark.speculation", conf("spark.speculation", "true")),
    fires("speculation", f"{PROPERTIES}: spark.speculation", properties={"spark.speculation": "true"}),
    fires("idle-timeout", f"spark.conf.{IDLE}", DYNAMIC, says="1 min"),
    fires("idle-timeout", f"spark.conf.{IDLE}", DYNAMIC, conf(IDLE, "600s"), "spark.trigger.interval=10 min",
          says="10 min"),
    fires("worker-memory", f"spark.conf.{OVERHEAD}", YARN, conf("spark.executor.cores", 4),
          says="410 MiB beside the heap, and 4"),
    fires("worker-memory", f"spark.conf.{OVERHEAD}", YARN, "runtime.bytes.per.task=1073741824",
          says="384 to 2304", severity=ADVICE),
    fires("ignored-key", WARMUPS, NO_LIMIT),
    fires("ignored-key", PROBING, NO_LIMIT),
    fires("ignored-key", "runtime.tags", f"{RACK}.tags=[]"),
    fires("ignored-key", f"{RACK}.tags", "placement.num.standby.replicas=0"),
    fires("ignored-key", f"{RACK}.traffic_cost", f"{RACK}.traffic_cost=5"),
    fires("ignored-key", f"{RACK}.non_overlap_cost", f"{RACK}.non_overlap_cost=5"),
    fires("ignored-key", "runtime.weights", "placement.task.assignor.class=sticky"),
    fires("ignored-key", "placement.balance.factor", "placement.balance.factor=2", says="2"),
    fires("ignored-key", "report.log.tasks", "report.log=none"),
    fires("ignored-key", "report.metrics.host", "report.metrics.port=null"),
    fires("ignored-key", "runtime.locality.wait.ms", conf(WAIT, "5s"), says=f"{WAIT} is 5s"),
    fires("ignored-key", "spark.master", conf("spark.master", "yarn"), says="spark.conf.spark.master is yarn"),
    fires("ignored-key", f"spark.conf.{STORES}", conf(STORES, "x")),
    fires("ignored-key", f"{PROPERTIES}: {LOCATION}", properties={LOCATION: "/c"}),
    fires("ignored-key", "spark.conf.spark.network.timeot", conf("spark.network.timeot", "600s"), says="600s"),
    fires("ignored-key", "spark.conf.network.timeout", conf("network.timeout", "600s")),
    fires("ignored-key", f"{PROPERTIES}: spark.executr.cores", properties={"spark.executr.cores": "2"}),
]  # fmt: skip
QUIET = [
    quiet("directory-not-kept", "state.dir=/var/tmp/state"),
    quiet("directory-not-kept", "state.dir=/tmpdir/state"),
    quiet("directory-not-kept", conf("spark.local.dir", "/a,/disk/shop/state/x")),
    quiet("state-on-network", "state.dir=/shared/state", file_systems={}),
    quiet("checkpoint-on-one-host", "checkpoint.dir=/disk/c", "spark.master=local-cluster[3,2,1024]"),
    quiet("checkpoint-on-one-host", "checkpoint.dir=/disk/c", "spark.master=spark://127.0.0.1:7077"),
    quiet("checkpoint-on-one-host", "checkpoint.dir=/disk/c", file_systems={}),
    quiet("state-without-end", **endless(processor="table-join")),
    quiet("warm-ups-slow", *SLOW, "spark.master=local[4]"),
    quiet("warm-ups-slow", *SLOW, NO_LIMIT, topology=topology(96)),
    quiet("warm-ups-slow", *SLOW, topology=topology(6)),
    quiet("tag-without-values", f"{RACK}.tags=[host]", "runtime.tags={}"),
    quiet("records-at-risk", f"{ORDERS}.failOnDataLoss=true", f"{TOTALS}.changed_topics=stop"),
    quiet("records-at-risk", "input.ticks={format: rate}", "input.dir=/in", "output.dir=/out"),
    quiet("keys-unchecked", topology=topology(partition_column="partition", key_bytes="key")),
    quiet("keys-unchecked", topology=topology(partition_column="partition", check_keys=False)),
    quiet("keys-unchecked", topology=topology(reads="a reader")),
    quiet("secret-in-plain-text", conf("spark.authenticate.secret.file", "/etc/secret")),
    quiet("secret-in-plain-text", f"{ORDERS}.kafka.sasl.mechanism=PLAIN"),
    quiet("secret-in-plain-text", conf("spark.security.credentials.hive.enabled", "false")),
    quiet("secret-in-plain-text", conf("spark.hadoop.fs.s3a.secret.key", "'${env:SECRET}'")),
    quiet("locality-wait-short", "runtime.locality.wait.ms=500", conf(WAIT, "30s")),
    quiet("locality-wait-short", "runtime.locality.wait.ms=3000"),
    quiet("locality-wait-short", "runtime.locality.wait.ms=500", steered=True),
    quiet("speculation", conf("spark.speculation", "false"), properties={"spark.speculation": "true"}),
    quiet("idle-timeout", DYNAMIC, conf(IDLE, "600")),
    quiet("idle-timeout", DYNAMIC, "spark.master=local[2]"),
    quiet("worker-memory", YARN, conf(OVERHEAD, "1g")),
    quiet("worker-memory", YARN, conf(f"{OVERHEAD}Factor", "0.4")),
    quiet("worker-memory", YARN, conf("spark.executor.pyspark.memory", "1g")),
    quiet("worker-memory", conf("spark.executor.cores", 4)),
    quiet("ignored-key", NO_LIMIT, written=frozenset()),
    quiet("ignored-key", f"{RACK}.tags=[]", "runtime.tags={}"),
    quiet("ignored-key", f"{RACK}.traffic_cost=5", f"{RACK}.strategy=min_traffic"),
    quiet("ignored-key", "placement.task.assignor.class=sticky", "runtime.weights={}"),
    quiet("ignored-key", "report.metrics.port=null", written=frozenset()),
    quiet("ignored-key", conf(WAIT, "30s")),
    quiet("ignored-key", conf("spark.master", "spark://driver:7077")),
    quiet("ignored-key", conf(STORES, "x"), steered=True),
    quiet("ignored-key", conf("spark.shop.level", 3), conf("hive.exec.parallel", "true")),
    quiet("ignored-key", properties={f"{OVERHEAD}Factor": "0.2"}),
]


def names(cases: list[Case]) -> list[str]:
    return [f"{case.rule}-{at}" for at, case in enumerate(cases)]


def test_each_rule_has_a_case_that_fires() -> None:
    assert len(BY_ID) == len(RULES)
    assert {case.rule for case in FIRING} == set(BY_ID)


def test_all_rules_look_at_an_application_of_which_all_is_known() -> None:
    found = diagnose(facts())
    assert (found.findings, found.unable, found.worst) == ((), {}, None)
    assert found.looked == tuple(BY_ID)


@pytest.mark.parametrize("case", FIRING, ids=names(FIRING))
def test_a_rule_fires_and_a_pasted_remedy_ends_the_finding(case: Case) -> None:
    rule = BY_ID[case.rule]
    first = {finding.path: finding for finding in rule.findings(facts(*case.overrides, **case.more))}[
        case.path
    ]
    assert first.severity is (case.severity or rule.severity)
    assert case.says in first.found
    assert first.why.endswith(".") and "\n" not in first.remedy
    words = shlex.split(first.remedy, comments=True)
    pasted = [word for word in words if word != "--set"]
    if words[:1] == ["--set"] and not pasted[0].startswith("topology."):
        after = rule.findings(facts(*case.overrides, *pasted, **case.more))
        assert case.path not in {finding.path for finding in after}


@pytest.mark.parametrize("case", QUIET, ids=names(QUIET))
def test_a_rule_does_not_fire_beside_what_it_finds(case: Case) -> None:
    assert BY_ID[case.rule].findings(facts(*case.overrides, **case.more)) == ()


def test_findings_are_listed_worst_first_in_a_document() -> None:
    advice = f"{ORDERS}.kafka.isolation.level=read_uncommitted"
    found = diagnose(facts(conf("spark.speculation", "true"), advice, refused="a: found b", checkpoint=None))
    assert [finding.severity for finding in found.findings] == ["error", "warning", "advice"]
    document = found.to_dict()
    assert document["schema"] == "taskplace.diagnosis/1"
    assert document["counts"] == {"error": 1, "warning": 1, "advice": 1}
    assert document["findings"][1] == {
        "rule": "speculation",
        "severity": "warning",
        "path": "spark.conf.spark.speculation",
        "found": "true",
        "why": found.findings[1].why,
        "remedy": "--set spark.conf.spark.speculation=false",
    }
    assert document["rules"]["unable"]["driver-runs"] == "nothing is known of the checkpoint"


@pytest.mark.parametrize("need", ["checkpoint", "topology", "stores"])
def test_a_rule_without_its_facts_does_not_look(need: str) -> None:
    found = diagnose(facts(**{need: None}, unknown={need: "a reason"}))
    expected = {rule.id: "a reason" for rule in RULES if need in rule.needs}
    assert expected and found.unable == expected
    assert set(found.looked) == BY_ID.keys() - expected.keys()


def test_rules_for_placed_streams_do_not_look_at_a_steered_query() -> None:
    found = diagnose(facts(steered=True, topology=None, stores=None))
    assert set(found.looked) == {rule.id for rule in RULES if rule.steered}
    assert found.unable == {}


def test_a_finding_shows_no_secret() -> None:
    why, remedy = "password=hunter2.", "a --password=hunter2"
    leaky = Found("spark.conf.spark.ssl.keyPassword", "hunter2", remedy, why=why)
    (finding,) = Rule("leaky", ADVICE, "secrets", "", lambda _: iter([leaky])).findings(facts())
    assert "hunter2" not in str(finding)


def test_the_remedy_of_a_refusal_is_what_it_expects() -> None:
    refused = "input.a.path: found nothing, expected a directory"
    (finding,) = BY_ID["start-refused"].findings(facts(refused=refused))
    assert finding.found == "nothing, expected a directory"
    assert finding.remedy == "# correct input.a.path: expected a directory"


# ---------------------------------------------------------------------------------------------- Spark's properties


def of(master: str | None = None, /, file: dict[str, str] | None = None, **conf: str) -> SparkProperties:
    given = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    return SparkProperties(SparkSettings(master=master, conf=given), file, "defaults.conf")


def test_the_application_has_priority_over_the_file() -> None:
    spark = of(file={WAIT: "1s", "spark.speculation": "true"}, locality_wait="5s")
    assert spark.seconds(WAIT) == 5.0
    assert spark.where(WAIT) == f"spark.conf.{WAIT}"
    assert spark.get("spark.speculation") == "true"
    assert spark.where("spark.speculation") == "defaults.conf: spark.speculation"
    assert spark.where("spark.app.name") == "spark.conf.spark.app.name"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (of(), "local[*]"),
        (of(file={"spark.master": "yarn"}), "yarn"),
        (of("spark://a:1", file={"spark.master": "yarn"}), "spark://a:1"),
        (of("spark://a:1", master="local"), "local"),
    ],
)
def test_the_master_that_counts(given: SparkProperties, expected: str) -> None:
    assert given.master == expected


def test_a_file_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text("# comment\nspark.master      yarn\nspark.a=4g  \nspark.jars: a,\\\n  b\nother x\n")
    assert read_properties(file) == {"spark.master": "yarn", "spark.a": "4g", "spark.jars": "a,b"}


@pytest.mark.parametrize("text", ["application: {id: shop}\n", "spark.x \\u12\n", None])
def test_another_file_is_bad_input(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(InputError, match=r"app\.yaml: (found|there is no such file)"):
        read_properties(tmp_path / "app.yaml")


def test_no_name_that_spark_knows_is_doubted() -> None:
    """Of all names in the classes of Spark's configuration."""
    pyspark = pytest.importorskip("pyspark")
    known, entry = set(), re.compile(rb"\x01..(spark(?:\.[a-zA-Z0-9_-]+)+)(?=[\x00-\x14])", re.DOTALL)
    for jar in Path(pyspark.__file__).parent.glob("jars/spark-*.jar"):
        with zipfile.ZipFile(jar) as classes:
            for name in classes.namelist():
                if name.endswith(".class") and "conf" in name.lower():
                    known |= {found.decode() for found in entry.findall(classes.read(name))}
    assert len(known) > 1000
    assert {"spark.speculation", "spark.executor.memory", "spark.sql.shuffle.partitions"} <= known
    assert {name: meant for name in sorted(known) if (meant := misspelled(name))} == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("spark.dirver.memory", "spark.driver.memory"),
        ("spark.executor.instance", "spark.executor.instances"),
        ("spark.dynamicallocation.enabled", "spark.dynamicAllocation.enabled"),
        ("spark.hadoop.executor.memory", ""),
        ("fs.s3a.endpoint", ""),
    ],
)
def test_the_property_that_a_name_means(name: str, meant: str) -> None:
    assert misspelled(name) == meant
