"""The keys to hash, and what writes `spark_hashes.json`: what Spark's own `hash()` says of them.

Run it again for a new version of Spark: `python tests/spark/worker/make_spark_hashes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

FILE = Path(__file__).with_name("spark_hashes.json")
PARTITIONS = 12

INTS = [None, 0, 1, -1, 2, 42, 127, -128]
SHORTS = [*INTS, 255, 32_767, -32_768]
WORDS = [*SHORTS, 65_536, 2**31 - 1, -(2**31)]
LONGS = [*WORDS, 2**31, 2**32, 2**32 + 1, 2**63 - 1, -(2**63), 1_700_000_000_000_000]
DOUBLES = [None, 0.0, -0.0, 1.0, -1.0, 0.1, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]
FLOATS = [None, 0.0, -0.0, 1.0, -1.0, 0.5, 3.4e38, 1e-45, float("inf"), float("-inf"), float("nan")]
#: Lengths 0 to 20, so that every number of blocks and of remaining bytes occurs, in ASCII and beyond it.
TEXTS = [
    None,
    *("abcdefghijklmnopqrst"[:n] for n in range(21)),
    "é", "ß", "日", "日本", "日本語", "🛫", "🛬x", "naïve", "Zürich", "N14228", "N24211", "a\x00b", "ÿ" * 5,
]  # fmt: skip
BYTES = [
    None,
    *(bytes(range(256 - n, 256)) for n in range(21)),
    b"\x00",
    b"\x00" * 4,
    b"\x7f\x80\xff",
    b"a",
    "日本".encode(),
]

COLUMNS: dict[str, pa.Array] = {
    "boolean": pa.array([None, True, False], pa.bool_()),
    "byte": pa.array(INTS, pa.int8()),
    "short": pa.array(SHORTS, pa.int16()),
    "int": pa.array(WORDS, pa.int32()),
    "long": pa.array(LONGS, pa.int64()),
    # Two more NaNs, as processors make them: one with the sign set, one with a payload.
    "float": pa.concat_arrays(
        [
            pa.array(FLOATS, pa.float32()),
            pa.array(np.array([0xFFC00000, 0x7FC00001], np.uint32).view(np.float32)),
        ]
    ),
    "double": pa.concat_arrays(
        [
            pa.array(DOUBLES, pa.float64()),
            pa.array(np.array([0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)),
        ]
    ),
    "date": pa.array([None, 0, 1, -1, 19_723, -719_162], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([None, 0, 1, -1, 1_388_534_400_000_000, -62_135_596_800_000_000], pa.int64()).cast(
        pa.timestamp("us", tz="UTC")
    ),
    "timestamp_ntz": pa.array([None, 0, 1, -1, 1_388_534_400_000_000], pa.int64()).cast(pa.timestamp("us")),
    "string": pa.array(TEXTS, pa.string()),
    "binary": pa.array(BYTES, pa.binary()),
}

#: Keys of several columns, each a sequence of names of `COLUMNS`.
KEYS = [
    ("string", "timestamp"),
    ("timestamp", "string"),
    ("int", "long", "string", "double", "boolean"),
    ("string", "string"),
    ("binary", "date", "float", "short", "byte"),
]
MULTI_ROWS = 40


def cases() -> dict[str, pa.Table]:
    """Return all cases: a name, and the table whose rows are the keys."""
    single = {name: pa.table({"c0": column}) for name, column in COLUMNS.items()}
    return single | {"+".join(names): _mixed(names) for names in KEYS}


def _mixed(names: Sequence[str]) -> pa.Table:
    # Different strides, so that nulls meet values in every column.
    rows = np.arange(MULTI_ROWS)
    columns = [
        COLUMNS[name].take(pa.array(rows * (2 * i + 1) % len(COLUMNS[name]))) for i, name in enumerate(names)
    ]
    return pa.table({f"c{i}": column for i, column in enumerate(columns)})


def main() -> None:
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know it by

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.timestampType", "TIMESTAMP_NTZ")  # for Arrow timestamps without a zone
        .getOrCreate()
    )
    found = {}
    for name, table in cases().items():
        df = spark.createDataFrame(table).coalesce(1)
        hashed = F.hash(*df.columns)
        rows = df.select(hashed.alias("hash"), F.pmod(hashed, F.lit(PARTITIONS)).alias("partition")).toArrow()
        found[name] = {
            "types": [kind for _, kind in df.dtypes],
            "hashes": rows["hash"].to_pylist(),
            "partitions": rows["partition"].to_pylist(),
        }
    spark.stop()
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in found.items())
    head = f'"spark": {json.dumps(pyspark.__version__)}, "of": {PARTITIONS}'
    FILE.write_text(f'{{{head}, "cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
