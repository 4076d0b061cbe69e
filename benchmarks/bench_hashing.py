"""What it costs to hash keys, by the mix of their lengths: time per byte should not depend on the longest.

python benchmarks/bench_hashing.py
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from taskplace.spark.worker.hashing import spark_hash

MIXES = {
    "200,000 keys of 8 bytes": [8] * 200_000,
    "200,000 keys of 6 to 40 bytes": list(range(6, 41)) * 5_714,
    "1,000 keys of 1 KB": [1_000] * 1_000,
    "200,000 of 8 bytes, 1,000 of 1 KB": [8] * 200_000 + [1_000] * 1_000,
    "200,000 of 8 bytes, 1 of 1 MB": [8] * 200_000 + [1 << 20],
    "200,000 of 8 bytes, 10 of 1 MB": [8] * 200_000 + [1 << 20] * 10,
    "1 of each length up to 4 KB": list(range(4_096)),
    "1 of 4 MB": [4 << 20],
}


def main() -> None:
    random = np.random.default_rng(1)
    print(f"{'':36} {'MB':>7} {'seconds':>9} {'ns a byte':>10}")
    for name, lengths in MIXES.items():
        sizes = random.permutation(np.array(lengths, np.int64))
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        data = random.integers(97, 123, int(offsets[-1]), dtype=np.uint8)
        keys = pa.Array.from_buffers(
            pa.string(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            spark_hash([keys])
            best = min(best, time.perf_counter() - start)
            if best > 2:
                break
        print(f"{name:36} {len(data) / 1e6:7.2f} {best:9.4f} {1e9 * best / len(data):10.1f}")


if __name__ == "__main__":
    main()
