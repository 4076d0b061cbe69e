"""A table join in YAML alone: makes the input for `table_join.yaml`, runs it, and checks the output.

Run it from the repository's root:  .venv/bin/python -m examples.table_join

The input has three batches of orders and of customers. Ada moves in the second batch: earlier orders go to the old
city, later ones to the new city. The city of an order is null while its customer is unknown.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from taskplace.cli import main as taskplace

FILE = Path(__file__).with_suffix(".yaml")
ORDERS = [
    [(1, "ada", 500), (2, "ben", 700), (3, "cleo", 900)],
    [(4, "ada", 100), (5, "ben", 200)],
    [(6, "cleo", 300), (7, "ada", 400)],
]
CUSTOMERS = [[("ada", "Paris"), ("ben", "Rome")], [("ada", "Oslo")], [("cleo", "Lima")]]
RIGHT = {1: "Paris", 2: "Rome", 3: None, 4: "Oslo", 5: "Rome", 6: "Lima", 7: "Oslo"}


def write_input(directory: Path) -> None:
    """Write one file of orders and one of customers for each batch."""
    for topic, names, batches in (
        ("orders", ("id", "customer", "cents"), ORDERS),
        ("customers", ("customer", "city"), CUSTOMERS),
    ):
        (directory / topic).mkdir(parents=True)
        for i, rows in enumerate(batches):
            file = directory / topic / f"{i}.parquet"
            pq.write_table(pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]), file)
            os.utime(file, (1e9 + i, 1e9 + i))  # Spark reads files in this order


def main(directory: Path = Path("var/table-join")) -> int:
    """Run it; return 0 if every order went to the right city."""
    shutil.rmtree(directory, ignore_errors=True)
    write_input(directory)
    places = {"input.orders.path": "orders", "input.customers.path": "customers"}
    places |= {"output.shipments.path": "shipments", "checkpoint.dir": "checkpoint", "state.dir": "state"}
    overrides = [part for key, name in places.items() for part in ("--set", f"{key}={directory / name}")]
    code = taskplace(["run", str(FILE), *overrides])
    if code:
        return code
    files = sorted((directory / "shipments").glob("batch_id=*/*.parquet"))
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    for row in sorted(rows, key=lambda row: row["id"]):
        print(f"order {row['id']} of {row['customer']}: {row['city'] or 'unknown'}")
    right = sorted((row["id"], row["city"]) for row in rows) == sorted(RIGHT.items())
    print("every order went to the right city" if right else f"wrong: expected {RIGHT}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main(*map(Path, sys.argv[1:])))
