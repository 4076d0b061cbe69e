"""Makes all private calls into Spark but those of steering. `probe.py` checks before anything starts that they exist.

The calls beyond the public API, and their reasons:

- `SparkContext.makeRDD(Seq[(T, Seq[String])])` with locations `executor_<host>_<id>`: runs a partition on the
  executor that has its state. It is only a preference; everything stays correct when Spark decides otherwise.
- `Dataset.toArrowBatchRdd()`, of which each partition is paired with one element of the pinned RDD: brings a shuffle's
  output to the pinned partition as Arrow bytes, one batch at a time. See `Bridge._paired`.
- `ShuffleExchangeLike.submitShuffleJob`: runs the map side first, and returns which partitions have rows.
- `ShuffleExchangeLike.getShuffleRDD` with `CoalescedPartitionSpec`, and `SparkSession.internalCreateDataFrame`: reads a
  range of the shuffle in one Spark partition, for one bin of tasks.
- `SparkStatusStore.executorList` and `SparkContext.getExecutorIds`: the executors;
  `TaskSchedulerImpl.executorsPendingDecommission` and `getExecutorDecommissionState`: those being decommissioned.
- `SparkContext.killTaskAttempt` and `AppStatusStore.taskList`: interrupt the tasks of a cancelled job that hang.
- `PythonUtils.toSeq`: makes a Scala sequence, in Scala 2.12 as in 2.13; `PythonUtils.getBroadcastThreshold`: from which
  size on PySpark itself makes a broadcast of a function.
- `StreamExecution.awaitInitialization`: a query has its sources, which have read the session's configuration.
- `DataSourceRegistration` with a stand-in for the session: a source that the driver's own Python plans.
"""

from taskplace.spark.bridge.bridge import Bridge as Bridge
from taskplace.spark.bridge.jobs import Job as Job
from taskplace.spark.bridge.jobs import Pinned as Pinned
from taskplace.spark.bridge.queries import register_source as register_source
from taskplace.spark.bridge.queries import start_query as start_query
from taskplace.spark.cluster import ArrowInput as ArrowInput
from taskplace.spark.cluster import Executor as Executor
from taskplace.spark.cluster import JobLostError as JobLostError
