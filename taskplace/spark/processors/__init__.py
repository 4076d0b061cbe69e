"""The processor protocol, and taskplace's own processors."""

from taskplace.spark.processors.aggregate import Aggregate, Count
from taskplace.spark.processors.aggregations import avg, count, first, last, max_, min_, sum_
from taskplace.spark.processors.base import Context, PerKey, Processor
from taskplace.spark.processors.deduplicate import Deduplicate
from taskplace.spark.processors.facts import Facts, State, passes_keys_on
from taskplace.spark.processors.join import TableJoin
from taskplace.spark.processors.times import event_time
from taskplace.spark.processors.windows import Tumbling

__all__ = [
    "Aggregate",
    "Context",
    "Count",
    "Deduplicate",
    "Facts",
    "PerKey",
    "Processor",
    "State",
    "TableJoin",
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
