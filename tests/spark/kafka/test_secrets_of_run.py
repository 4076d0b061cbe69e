"""A password of `taskplace run`: in no log of driver, JVM or executors, no event log, no page, no file, no command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import pyspark
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Brokers
from tests.support.kafka_broker import make_topics
from tests.support.kafka_users import credentials

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[3]
COMMAND = "import sys; from taskplace.cli import main; sys.exit(main())"
RIGHT, WRONG = "hunter2-of-the-run", "wrong-of-the-run"
TOPICS = ("secret-in", "secret-out")
SECONDS = 60


@pytest.fixture(scope="module")
def brokers():
    with Brokers(users={"reader": RIGHT}, tls=True) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        make_topics(admin, *(NewTopic(name, 2) for name in TOPICS))
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "partitioner": "murmur2_random"})
        for number in range(100):
            producer.produce(TOPICS[0], key=f"k{number % 7}", value=str(number))
        assert producer.flush(SECONDS) == 0
        yield brokers


def document(brokers: Brokers, folder: Path) -> dict:
    """An application that reads from Kafka and writes to it, with all the logs that there are."""
    client = credentials(brokers, "SASL_SSL", "reader", folder / "password")
    servers = brokers.listener("SASL_SSL")
    text = {"format": "raw", "kind": "string"}
    source = {"topic": TOPICS[0], "key": {**text, "column": "k"}, "value": {**text, "column": "n"}}
    more = {"servers": servers, "options": {**client, "debug": "security,broker,protocol"}}
    return {
        "application": {"id": "secrets"},
        "topology": {
            "sources": {"in": {"key": "k", "partitions": 2}},
            "nodes": {
                "count": {
                    "process": "in",
                    "processor": "count",
                    "options": {"store": "seen", "by": {"k": "string"}},
                },
                "out": {"sink": "in"},
            },
        },
        "input": {"in": {"kafka": {**source, **more}}},
        "output": {"out": {"kafka": {"topic": TOPICS[1], "key": "k", **more}}},
        "checkpoint": {"dir": str(folder / "checkpoint")},
        "state": {"dir": str(folder / "state")},
        "report": {"html": str(folder / "report.html"), "events": str(folder / "run.jsonl")},
        "spark": {
            "master": "local-cluster[1,2,1024]",
            "conf": {
                "spark.executor.memory": "900m",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.ui.enabled": False,
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.shuffle.partitions": 2,
                "spark.log.level": "INFO",
                "spark.logConf": True,
                "spark.eventLog.enabled": True,
                "spark.eventLog.compress": False,
                "spark.eventLog.dir": f"file:{folder / 'events'}",
            },
        },
    }


def taskplace(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(folder / "spark")},
        stdin=subprocess.DEVNULL,
        timeout=400,
    )


def link_spark(folder: Path) -> None:
    """Make a directory of Spark's own: executors of a local cluster have their directories and logs in it."""
    folder.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "work":
            (folder / each.name).symlink_to(each)


def files(folder: Path) -> dict[str, bytes]:
    """Return what is in each file, by its path."""
    own = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in own}


def test_a_password_is_shown_nowhere(brokers, tmp_path):
    link_spark(tmp_path / "spark")
    (tmp_path / "events").mkdir()
    (tmp_path / "app.yaml").write_text(yaml.safe_dump(document(brokers, tmp_path)))
    (tmp_path / "password").write_text(WRONG)
    refused = taskplace(tmp_path, "run", "app.yaml")
    assert refused.returncode != 0 and "check the credentials" in refused.stdout + refused.stderr
    (tmp_path / "password").write_text(RIGHT)
    done = taskplace(tmp_path, "run", "app.yaml")
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    shown = [taskplace(tmp_path, *each) for each in (("config", "app.yaml", "--all"), ("doctor", "app.yaml"))]
    shown += [taskplace(tmp_path, "run", "--check", "app.yaml"), refused, done]
    (tmp_path / "password").unlink()
    found = files(tmp_path)
    names = "\n".join(found)
    for needed in ("spark/work/", "/stderr", "events/", "report.html", "run.jsonl", "checkpoint/status.json"):
        assert needed in names, names
    assert "INFO" in done.stderr and "sasl.password" in shown[0].stdout
    found |= {f"output of {each.args}": (each.stdout + each.stderr).encode() for each in shown}
    assert [name for name, text in found.items() if RIGHT.encode() in text or WRONG.encode() in text] == []
