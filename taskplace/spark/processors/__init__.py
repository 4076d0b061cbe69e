"""The processor protocol, and taskplace's own processors."""

from taskplace.spark.processors.aggregate import Aggregate, Count, Tumbling
from taskplace.spark.processors.base import Context, PerKey, Processor
from taskplace.spark.processors.deduplicate import Deduplicate
from taskplace.spark.processors.facts import InputColumn
from taskplace.spark.processors.join import TableJoin
from taskplace.spark.processors.parts import avg, count, first, last, max_, min_, sum_
from taskplace.spark.processors.times import event_time
from taskplace.spark.processors.traits import Traits, passes_keys_on

__all__ = [
    "Aggregate",
    "Context",
    "Count",
    "Deduplicate",
    "InputColumn",
    "PerKey",
    "Processor",
    "TableJoin",
    "Traits",
    "Tumbling",
    "avg",
    "count",
    "event_time",
    "first",
    "last",
    "max_",
    "min_",
    "passes_keys_on",
    "sum_",
]
