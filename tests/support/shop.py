"""An application in YAML alone, and a module with its custom functions."""

from __future__ import annotations

import copy

import yaml

from taskplace.spec.application import Settings

ORDERS = """
application: {id: orders}
topology:
  sources:
    orders: {key: customer, partitions: 4}
  nodes:
    once: {process: orders, processor: deduplicate, options: {by: {customer: string, id: long}}}
    spent:
      process: once
      processor: aggregate
      options:
        store: spent-by-customer
        by: {customer: string}
        aggregates: {orders: count, cents: {sum: cents, type: int64}, worst: {max: cents}}
    totals: {sink: spent}
input:
  orders: {format: parquet, path: in, schema: "id long, customer string, cents long", options: {maxFilesPerTrigger: 1}}
output:
  totals: {path: out}
"""


def longest(key, rows, state):
    return state, rows


def clean(context, rows, *, least: int = 0):
    return rows


def make_clean(least):
    return lambda context, rows: rows.slice(least)


class Latest:
    def __init__(self, column: str, limit: int = 3) -> None:
        self.column, self.limit = column, limit

    def layouts(self):
        return {"latest": {"key": {self.column: "string"}, "value": {"at": "timestamp"}}}

    def process(self, context, rows):
        return rows


def show(df, batch_id):
    """The function of a sink."""


HERE = "shop_processors"


def settings(**changes) -> Settings:
    """Return `ORDERS` with changed values. Keywords are paths, with __ between the keys."""
    document = copy.deepcopy(yaml.safe_load(ORDERS))
    for path, value in changes.items():
        *way, last = path.split("__")
        at = document
        for key in way:
            at = at[key]
        at[last] = value
    return Settings.from_mapping(document)


def node(processor, **options) -> dict:
    return {"process": "once", "processor": processor, "options": options}
