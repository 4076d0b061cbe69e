"""Which casts keep values apart: against what the row codec makes of values that are prone to be merged."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from taskplace.errors import InputError
from taskplace.spark.casts import cast, keeps_apart, keeps_order
from taskplace.spark.processors.groups import ranks
from taskplace.spark.state.rows import RowCodec

TEXTS = ["7", "07", "7.0", "+7", "true", "1", "True", "2020-01-01", "-0", "0", "NaN"]
TEXTS += ["", " 7", "2020-01-01 00:00:00"]
INTS = [0, 1, 2, -1, 7, 127, -128]
WIDE = [*INTS, 2**53, 2**53 + 1, 2**62, 2**62 + 1, -(2**63), 2**63 - 1]
WIDE += [86_400_000, 3_600_000_000, 1_383_456_600_000_000]
FLOATS = [0.0, -0.0, 1.0, 1.5, 1.25, 0.1, 2.0**53, 2.0**62, math.inf, -math.inf, math.nan, 1e300, 2.0**24]
DECIMALS = [Decimal(text) for text in ("0.00", "0.01", "1.00", "1.50", "-1.50", "123456.78", "0.10")]
LONG = [Decimal(f"12345678901234567890.1{digit}") for digit in "12"]
TIMES = [0, 1, 999_999, 10**6, 86_400_000_000, 86_400_000_001, 1_383_456_600_000_000, 1_383_460_200_000_000]
TIMES += [2**62]


def raw(kind: pa.DataType, values: list[int]) -> pa.Array:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


#: What a topic may be split by, Spark's types and those of repartitions.
SAMPLES: list[pa.Array] = [
    pa.array(TEXTS),
    pa.array(TEXTS, pa.large_string()),
    pa.array([text.encode() for text in TEXTS] + [b"\xff"]),
    pa.array([True, False]),
    *(pa.array(INTS, kind) for kind in (pa.int8(), pa.int16(), pa.int32())),
    pa.array(WIDE, pa.int64()),
    pa.array([abs(n) for n in WIDE[:-3]], pa.uint64()),
    pa.array([np.float16(x) for x in (0.0, -0.0, 1.0, 1.5, math.nan)], pa.float16()),
    pa.array(FLOATS[:-2], pa.float32()),
    pa.array([*FLOATS, np.nextafter(0.1, 1)], pa.float64()),
    pa.array(DECIMALS, pa.decimal128(10, 2)),
    pa.array([*DECIMALS, *LONG], pa.decimal128(38, 2)),
    raw(pa.date32(), [0, 1, -1, 19_000, 2**31 - 1]),
    raw(pa.date64(), [0, 86_400_000, 1, 2]),
    *(raw(pa.timestamp("us", tz=zone), TIMES) for zone in (None, "UTC", "America/New_York")),
    raw(pa.timestamp("ns"), TIMES),
    raw(pa.timestamp("s"), TIMES[:-1]),
    raw(pa.time64("us"), [0, 1, 1_000_000, 86_399_999_999]),
    raw(pa.time32("s"), [0, 1, 86_399]),
    raw(pa.duration("us"), TIMES),
]
#: What a store's key may be of.
_PLAIN = "string binary bool int8 int16 int32 int64 uint8 uint64 float16 float32 float64 date32 date64"
_TIMES = "time32[s] time64[us] time64[ns] duration[us] duration[ms] timestamp[us] timestamp[ms] timestamp[ns]"
KINDS = [
    *map(pa.type_for_alias, f"{_PLAIN} {_TIMES}".split()),
    *(pa.decimal128(10, 1), pa.decimal128(38, 3), pa.decimal128(10, 2), pa.decimal256(40, 2)),
    *(pa.timestamp("us", tz="UTC"), pa.timestamp("s", tz="America/New_York")),
]


def keys(sample: pa.Array, kind: pa.DataType) -> list[bytes | None]:
    """Return the key that each value becomes; None for one that is refused."""
    codec, found = RowCodec(pa.schema([("k", kind)])), []
    for i in range(len(sample)):
        try:
            found += codec.encode(pa.table({"k": sample.slice(i, 1)}))
        except InputError:
            found.append(None)
    return found


def own(sample: pa.Array) -> list[object]:
    """Return what tells the values apart: floats are hashed with one NaN and one zero."""
    if pa.types.is_floating(sample.type):
        return [repr(float(x.as_py()) + 0.0) for x in sample]
    if not pa.types.is_primitive(sample.type) or pa.types.is_boolean(sample.type):
        return sample.to_pylist()
    width = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[sample.type.bit_width]
    return sample.view(width).to_pylist()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample.type))
def test_a_cast_keeps_values_apart_if_it_is_said_to_and_merges_none_otherwise(sample):
    """Some are said to merge values that only might: floats as integers."""
    for kind in KINDS:
        made = [pair for pair in zip(keys(sample, kind), own(sample), strict=True) if pair[0] is not None]
        of: dict[bytes, object] = {}
        merged = [(kind, value) for key, value in made if of.setdefault(key, value) != value]
        assert not (merged and keeps_apart(sample.type, kind)), merged
    assert any(keeps_apart(sample.type, kind) for kind in KINDS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample.type))
def test_a_cast_that_is_said_to_keep_the_order_does(sample):
    """Of texts, the order is that of the values that they are parsed as, so nothing is compared."""
    allowed = [kind for kind in KINDS if keeps_order(sample.type, kind)]
    assert allowed
    parsed = isinstance(sample[0].as_py(), str | bytes)
    for kind in () if parsed else allowed:
        fits = [i for i, key in enumerate(keys(sample, kind)) if key is not None]
        if pa.types.is_date(sample.type) or pa.types.is_timestamp(sample.type):
            shown = sample.cast(pa.string()).to_pylist()
            fits = [i for i in fits if shown[i][4] == "-"]  # as texts, years beyond 9999 have another order
        values = sample.take(pa.array(fits, pa.int64()))
        assert not fits or dense(cast(values, kind)) == dense(values), kind


def dense(column: pa.Array) -> list[int]:
    return pc.rank(ranks(pa.chunked_array([column])), tiebreaker="dense").to_pylist()


STRING, US = pa.string(), pa.timestamp("us", tz="UTC")


#: The words of the page's table, and types that stand for them.
WORDS = {
    "integers": [pa.int8(), pa.int64()],
    "decimals": [pa.decimal128(30, 6)],
    "decimal": [pa.decimal128(9, 2)],
    "float32": [pa.float32()],
    "float64": [pa.float64()],
    "string": [STRING],
    "binary": [pa.binary()],
    "boolean": [pa.bool_()],
    "dates": [pa.date32()],
    "date": [pa.date32()],
    "timestamp": [pa.timestamp("us"), US],
    "timestamps": [pa.timestamp("us"), US, pa.timestamp("s")],
    "timestamps of any unit and zone": [pa.timestamp("us"), US, pa.timestamp("s", tz="America/New_York")],
}
EXAMPLES = {
    **{kind: pa.array([1, 2], kind) for kind in (pa.int8(), pa.int64(), pa.float32(), pa.float64())},
    **{kind: pa.array([0, 1_000_000], pa.int64()).view(kind) for kind in (pa.timestamp("us"), US)},
    STRING: pa.array(["1"]),
    pa.binary(): pa.array([b"1"]),
    pa.bool_(): pa.array([True]),
    pa.date32(): pa.array([1], pa.int32()).view(pa.date32()),
    pa.decimal128(9, 2): pa.array([Decimal("1.00")], pa.decimal128(9, 2)),
}


def test_the_table_of_the_page_is_what_is_done():
    page = (Path(__file__).parents[2] / "docs/runtime.md").read_text()
    lines = page.split("| split by |")[1].split("\n\n")[0].splitlines()[2:]
    tried = 0
    for line in lines:
        split, kept, refused = (
            [w.strip() for w in re.sub(r"\(.*?\)", "", c).split(",")] for c in line.split("|")[1:4]
        )
        for sample in (EXAMPLES[kind] for word in split for kind in WORDS[word]):
            for words, wanted in ((kept, True), (refused, False)):
                for kind in (kind for word in words for kind in WORDS.get(word, [])):
                    casts = None not in keys(sample, kind)
                    assert (keeps_apart(sample.type, kind) and casts) is wanted, (line, sample.type, kind)
                    tried += 1
    assert tried > 60


F32, F64 = pa.float32(), pa.float64()
DAY = datetime(2026, 1, 2, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("column", "kind", "says"),
    [
        (pa.array([1.0, 1e300]), pa.float32(), r"1e\+300 is beyond what float holds"),
        (pa.array([2048, 1 << 53]), pa.float16(), "9007199254740992 is not a value of halffloat"),
        (pa.array([2]), pa.bool_(), "2 is neither true nor false"),
        (raw(pa.date64(), [1]), pa.date32(), "would lose data"),
        (pa.array([DAY], US), pa.time64("us"), "has a date"),
        (pa.array([1e300]).dictionary_encode(), pa.float32(), "beyond what float holds"),
        (pa.array([f"{2**128 + 5}"]), pa.decimal128(38, 0), "not fit in precision 38"),
        (pa.array(["1e-999999999"]), pa.decimal128(38, 4), "1e-999999999 is not a value of decimal"),
        (pa.array([b"0x10"]), pa.int64(), "0x10 is not a number, as int64"),
        (raw(pa.timestamp("ms", "UTC"), [2**60]), pa.string(), "has no text"),
    ],
)
def test_a_cast_that_loses_something_of_a_value_is_refused(column, kind, says):
    for rows in (column, pa.chunked_array([column, column])):
        with pytest.raises(pa.ArrowException, match=says):
            cast(rows, kind)
        with pytest.raises(InputError, match=r"^stores\.s\.k: found "):
            RowCodec(pa.schema([("k", kind)]), "stores.s").encode(pa.table({"k": rows}))
