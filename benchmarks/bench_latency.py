"""How long a small batch takes: a row, and 10,000 rows, from the arrival of a file to its commit, beside Spark's own.

    make bench-latency              # or: python benchmarks/bench_latency.py [--quick] [--json FILE]

The variants and rows are those of `bench_throughput.py`. A file comes when the batch before is committed, so batches
follow each other as fast as they go. The seconds of a batch are those from the arrival of its file to the commit of its
batch. Blocks of one variant and the other take turns, after batches that do not count. p50 and p99 of 200 batches each
(`--batches`).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from bench_throughput import (
    NATIVE,
    NATIVE_PARQUET,
    PLACED,
    PLACED_BARE,
    SCHEMA,
    check,
    data,
    native,
    native_parquet,
    placed,
)
from spark_bench import Out, Stream, arguments, cluster, in_turn, write_files

WARM = 10


def latency(stream: Stream, file: Path) -> float:
    """Feed a file, and return the seconds until its batch was committed."""
    batch = stream.feed(file)
    came = time.time()
    return stream.wait(batch) - came


def measure(
    spark: Any, out: Out, folder: Path, variants: dict[str, Any], rows: int, blocks: int, length: int
) -> dict[str, Any]:
    """Return the seconds of each variant's batches of so many rows, each with a key of its own."""
    where, warm = folder / f"rows-{rows}", min(WARM, length)
    file = write_files(where / "data", "rows", [data(np.random.default_rng(1), rows, rows)])[0]
    streams = {
        name: Stream(spark, name, where / str(i), SCHEMA, start)
        for i, (name, start) in enumerate(variants.items())
    }
    for stream in streams.values():
        for _ in range(warm):
            latency(stream, file)
    seconds: dict[str, list[float]] = {name: [] for name in streams}
    for block in range(blocks):
        for name in in_turn(list(streams), block):
            seconds[name] += [latency(streams[name], file) for _ in range(length)]
        out.note(f"{rows:,} rows: block {block + 1} of {blocks}")
    for stream in streams.values():
        check(stream, stream.fed - 1, (rows, rows * stream.fed))
    figures = {
        name: {
            "p50": float(np.percentile(some, 50)),
            "p99": float(np.percentile(some, 99)),
            "all": some,
            "phases": streams[name].phases(range(warm, streams[name].fed)),
            "spans": streams[name].spans(range(warm, streams[name].fed)),
        }
        for name, some in seconds.items()
    }
    for stream in streams.values():
        stream.stop()
    return figures


def show(out: Out, rows: int, found: dict[str, Any], pairs: dict[str, str]) -> None:
    """Print the percentiles, each variant beside Spark's own."""
    out.say(
        f"\n{rows:,} {'row' if rows == 1 else 'rows'} a batch, from the arrival of its file to its commit"
    )
    lines = []
    for name, beside in pairs.items():
        one, other = found[name], found[beside]
        ratios = [f"{one[p] / other[p]:.2f}" for p in ("p50", "p99")]
        lines.append([name, *(f"{one[p]:.2f} s" for p in ("p50", "p99")), *ratios])
        lines.append([beside, *(f"{other[p]:.2f} s" for p in ("p50", "p99")), "", ""])
    out.table(["variant", "p50", "p99", "p50: of native", "p99: of native"], lines)
    for name in found:
        out.phases(f"{name}, as Spark sees it", found[name]["spans"])
        if found[name]["phases"]:
            out.phases(f"{name}, as taskplace sees it", found[name]["phases"])


def main() -> None:
    """Measure and print."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200, help="how many batches of each variant and size")
    args = parser.parse_args()
    out = Out(args, "Latency of small batches")
    blocks, length = (1, 2) if args.quick else (4, max(1, args.batches // 4))
    sizes = (1, 100) if args.quick else (1, 10_000)
    with cluster("latency", args.scratch) as (spark, folder):
        variants = {
            PLACED: placed(spark),
            PLACED_BARE: placed(spark, sink=False),
            NATIVE: native,
            NATIVE_PARQUET: native_parquet,
        }
        for rows in sizes:
            found = measure(spark, out, folder, variants, rows, blocks, length)
            out.keep(f"{rows} rows", found)
            show(out, rows, found, {PLACED: NATIVE_PARQUET, PLACED_BARE: NATIVE})
    out.close()


if __name__ == "__main__":
    main()
