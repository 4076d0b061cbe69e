"""The shares of a batch: each in transactions of its own, by a process of its own, and there once."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from dataclasses import replace

from taskplace.errors import CheckpointError, Fenced, SinkError
from taskplace.spark.kafka import shares
from taskplace.spark.kafka.share_process import Opened
from taskplace.spark.kafka.shares import shared
from taskplace.spark.kafka.sink import KafkaSink
from taskplace.spark.targets import Commit
from tests.spark.kafka.test_sink_kills import check, kill_drivers
from tests.support.kafka_sink_lives import ANY_TIME, IN_PUBLISHING, Lives
from tests.support.kafka_sinks import Stream
from tests.support.kafka_topics import committed, read

FILES, ROWS = 5, 40


def sized(folder: Path, *sizes: int) -> list[Path]:
    files = [folder / f"{number}.parquet" for number in range(len(sizes))]
    for file, size in zip(files, sizes, strict=True):
        file.write_bytes(b"x" * size)
    return files


def test_each_file_is_in_one_share_and_the_shares_have_about_the_same_bytes(tmp_path):
    files = sized(tmp_path, 5, 1, 9, 1, 4, 4)
    found = shared(files, 2)
    assert found == shared(list(files), 2)
    assert sorted(file for share in found for file in share) == files
    assert [share == sorted(share) for share in found] == [True, True]
    assert sorted(sum(file.stat().st_size for file in share) for share in found) == [11, 13]


def test_fewer_files_than_shares(tmp_path):
    (file,) = sized(tmp_path, 3)
    assert shared([file], 3) == [[file], [], []]
    assert shared([], 2) == [[], []]


def test_a_process_that_is_gone_is_an_error_with_its_exit_code():
    sink = KafkaSink("out", servers="nowhere:9092", key="k", delivery="parallel")
    process = shares._Process(sink._writer._setup)
    process._process.kill()
    with pytest.raises(SinkError, match=r"of a batch: its process has ended with exit code -9; start again"):
        process.do(Opened("cp", "out"), lambda: None)
    process.close()


@pytest.fixture
def stream(kafka, tmp_path) -> Stream:
    options = {"delivery": "parallel", "transactions": 3}
    topic, markers = kafka.topic("out", 2), kafka.unique("markers")
    return Stream(tmp_path, kafka.bootstrap, topic, markers, kafka.unique("cp"), options)


def batch(stream: Stream, number: int, **more) -> Commit:
    """Return a batch of several files, each with the rows of keys of its own."""
    files = []
    for at in range(FILES):
        files.append(stream.folder / f"{number}-{at}.parquet")
        rows = {
            "k": [f"{at}-{row % 4}" for row in range(ROWS)],
            "i": [number * ROWS + row for row in range(ROWS)],
        }
        pq.write_table(pa.table(rows), files[-1])
    return replace(stream.commit(number, **more), files=files)


def expected(batches: int) -> dict[str, list[int]]:
    rows = [(f"{at}-{i % 4}", i) for at in range(FILES) for i in range(batches * ROWS)]
    return {key: [i for k, i in rows if k == key] for key, _ in rows}


def found(stream: Stream) -> dict[str, list[int]]:
    by_key: dict[str, list[int]] = {}
    for _, key, value in read(stream.servers, stream.topic):
        by_key.setdefault((key or b"").decode(), []).append(value["i"])
    return by_key


@pytest.mark.kafka
def test_each_share_once_whoever_publishes_it(stream):
    one, other = stream.opened(), stream.opened()
    try:
        for sink, number in [(one, 0), (one, 0), (other, 0), (other, 1), (one, 1), (one, 2)]:
            sink.publish_commit(batch(stream, number))
        assert found(stream) == expected(3)
        keys = {message.key() for message in committed(stream.servers, stream.markers)}
        cp = stream.checkpoint
        assert keys == {f'{{"checkpoint":"{cp}","sink":"out","share":"{k}/3"}}'.encode() for k in range(3)}

        def replaced() -> None:
            raise Fenced("another driver")

        with pytest.raises(Fenced, match="another driver"):
            other.publish_commit(batch(stream, 2, check_epoch=replaced))
        with pytest.raises(CheckpointError, match=r"has batch 2 of this checkpoint, with another manifest"):
            one.publish_commit(batch(stream, 2, checksum="other"))
        assert found(stream) == expected(3)
    finally:
        one.close()
        other.close()


@pytest.mark.kafka
@pytest.mark.parametrize("point", ["sink.sent", "sink.committed"])
def test_a_share_whose_process_dies_is_published_by_the_next_driver(stream, tmp_path, monkeypatch, point):
    (tmp_path / "orders").mkdir()
    monkeypatch.setenv("TASKPLACE_FAULTS", str(tmp_path / "orders"))
    one = stream.opened()
    one.publish_commit(batch(stream, 0))
    (tmp_path / "orders" / point).write_text("kill")
    with pytest.raises(SinkError, match=r"share \d/3 of a batch: its process has ended with exit code -9"):
        one.publish_commit(batch(stream, 1))
    assert found(stream) != expected(2) or point == "sink.committed"
    with pytest.raises(CheckpointError, match=r"found delivery 'exactly-once', expected 'parallel 3'"):
        stream.opened(repeated=1, delivery="exactly-once", transactions=None)
    with pytest.raises(CheckpointError, match=r"found delivery 'parallel 2', expected 'parallel 3'"):
        stream.opened(repeated=1, transactions=2)
    other = stream.opened(repeated=1)
    try:
        other.publish_commit(batch(stream, 1))
        assert found(stream) == expected(2)
    finally:
        other.close()
    one.publish_commit(batch(stream, 2))  # it is in charge, as far as it knows: it starts again
    one.close()
    assert found(stream) == expected(3)


@pytest.mark.kafka
def test_processes_end_with_their_sink(stream):
    sink = stream.opened()
    processes = [each._process for each in sink._writer._processes.values()]
    assert [process.poll() for process in processes] == [None] * 3
    sink.close()
    assert [process.poll() for process in processes] == [0] * 3


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_drivers_are_killed_while_their_processes_publish(kafka, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    topic = kafka.topic("out", partitions=3)
    lives = Lives(tmp_path, kafka.bootstrap, topic, kafka.unique("markers"), seed, delivery="parallel")
    kill_drivers(lives, [IN_PUBLISHING, "batch.committed", IN_PUBLISHING, ANY_TIME, IN_PUBLISHING])
    check(kafka, topic, lives.expected())
