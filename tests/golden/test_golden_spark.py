"""A checkpoint that an earlier version has made on Spark is continued, Spark's own beside it.

`python tests/golden/test_golden_spark.py` makes one. Spark's log of a directory that is read as a stream has absolute
paths: they are replaced by a mark when it is archived, and by the directory's new path when it is unpacked. What Hadoop
keeps of checksums beside those files is left out.

The last batch is committed, and not published; nor did Spark note down its end, as when a driver dies in between.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from taskplace.spark.messages import SCHEMA  # noqa: E402
from taskplace.spark.placed import Placed  # noqa: E402
from taskplace.spark.processors import Aggregate, Count, TableJoin, count  # noqa: E402
from taskplace.spark.sinks import ParquetSink  # noqa: E402
from tests.golden.formats import HERE, archive, unpack  # noqa: E402
from topology import Topology  # noqa: E402

NAME = "with-spark"
#: Stands for the folder in files that name it.
HERE_IT_WAS = "/the-folder-that-it-is-unpacked-to"
#: By batch: words, and what is said of some from then on.
BATCHES: Sequence[tuple[str, Mapping[str, str]]] = [
    ("aab", {"a": "first"}),
    ("abc", {"b": "second"}),
    ("ca", {"a": "other"}),
    ("abcd", {}),
    ("dda", {"d": "last"}),
]
MADE = 3


def topology(folder: Path) -> Topology:
    topo = Topology("words")
    words, names = (topo.source(name, key="k", partitions=2) for name in ("words", "names"))
    counted = words.process(Count("counts", by={"k": "string"}), name="counts")
    joined = counted.join_table(
        names, TableJoin("names", by={"k": "string"}, columns={"label": "string"}), name="j"
    )
    joined.sink("o", target=ParquetSink(folder / "joined"))
    again = counted.repartition(key="count", name="by-count", partitions=2)
    counts = Aggregate("how-often", by={"count": "int64"}, over_changes=True, times=count())
    again.process(counts, name="how-often").sink("h", target=ParquetSink(folder / "how-often"))
    return topo


def answers() -> dict[str, dict[int, list[tuple[Any, ...]]]]:
    """Return what each sink gets, by batch, in plain Python."""
    counts, labels, often = Counter[str](), dict[str, str](), Counter[int]()
    sent: dict[str, dict[int, list[tuple[Any, ...]]]] = {"joined": {}, "how-often": {}}
    for number, (words, names) in enumerate(BATCHES):
        counts.update(words)
        labels |= names
        found = [counts[k] for k in set(words)]
        often.update(found)
        sent["joined"][number] = sorted((k, counts[k], labels.get(k)) for k in set(words))
        sent["how-often"][number] = sorted((n, often[n]) for n in set(found))
    return sent


def run(spark: Any, folder: Path, batches: Sequence[int]) -> None:
    """Run batches, each as a query of its own that reads one more file of each source."""
    for number in batches:
        words, names = BATCHES[number]
        add(folder / "words", number, pa.table({"k": pa.array(list(words), pa.string())}))
        table = {
            "k": pa.array(list(names), pa.string()),
            "label": pa.array(list(names.values()), pa.string()),
        }
        add(folder / "names", number, pa.table(table))
        placed = Placed(
            spark,
            topology(folder),
            checkpoint=folder / "checkpoint",
            state_dir=folder / "state",
            config={"num.standby.replicas": 0},
        )
        sources = {
            name: spark.readStream.schema(schema).parquet(str(folder / name))
            for name, schema in {"words": "k string", "names": "k string, label string"}.items()
        }
        placed.start(sources, trigger={"availableNow": True}).awaitTermination()
        placed.close()


def add(folder: Path, number: int, rows: pa.Table) -> None:
    """Add a file to a directory that is read as a stream."""
    folder.mkdir(exist_ok=True)
    file = folder / f".{number}.parquet"
    pq.write_table(rows, file)
    file.rename(folder / f"{number}.parquet")


def sent(folder: Path) -> dict[str, dict[int, list[tuple[Any, ...]]]]:
    """Return what each sink has got, by batch."""
    return {
        sink: {
            int(path.name.partition("=")[2]): sorted(
                tuple(row.values())
                for file in path.glob("*.parquet")
                for row in pq.ParquetFile(file).read().to_pylist()
            )
            for path in (folder / sink).glob("batch_id=*")
        }
        for sink in answers()
    }


def moved(folder: Path, before: str, after: str) -> None:
    """Replace a path in the files of Spark's checkpoint."""
    for file in (folder / "checkpoint" / "spark").rglob("*"):
        if file.is_file():
            file.write_text(file.read_text().replace(before, after))


ARCHIVES = sorted(HERE.glob(f"manifest-*/{NAME}.tar.xz"))


def test_there_is_one_of_the_version_that_is_made_now():
    assert [path.parent.name for path in ARCHIVES] == [f"manifest-{SCHEMA.rpartition('/')[2]}"]


@pytest.mark.everyday("Formats and versions")
@pytest.mark.parametrize("archived", ARCHIVES, ids=lambda file: file.parent.name)
def test_a_checkpoint_of_an_earlier_version_is_continued_on_spark(cluster, tmp_path, archived):
    unpack(archived, tmp_path)
    moved(tmp_path, HERE_IT_WAS, str(tmp_path))
    assert MADE - 1 not in sent(tmp_path)["joined"], "it is committed, and not published"
    run(cluster, tmp_path, range(MADE, len(BATCHES)))
    assert sent(tmp_path) == answers()


def make(target: Path) -> None:
    """Make it on a Spark of its own."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run(spark, folder, range(MADE))
        spark.stop()
        assert sent(folder) == {sink: {n: of[n] for n in range(MADE)} for sink, of in answers().items()}
        shutil.rmtree(folder / "joined" / f"batch_id={MADE - 1}")
        own = folder / "checkpoint" / "spark"
        (own / "commits" / str(MADE - 1)).unlink()
        for file in own.rglob(".*.crc"):
            file.unlink()
        moved(folder, str(folder), HERE_IT_WAS)
        target.mkdir(exist_ok=True)
        kept = [path for path in folder.iterdir() if path.name != "state"]
        (target / f"{NAME}.tar.xz").write_bytes(archive(kept))


if __name__ == "__main__":
    make(HERE / f"manifest-{SCHEMA.rpartition('/')[2]}")
