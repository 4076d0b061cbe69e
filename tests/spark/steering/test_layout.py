"""Operators, stages and partitions, as read off plans, metadata and checkpoints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.steering.layout import StateOperator, layout, stages_of, that_ran
from topology.tasks import TaskId


def info(operator: int) -> str:
    return (
        f"state info [ checkpoint = file:/c/state, runId = r, opId = {operator}, ver = 3, numPartitions = 6]"
    )


CHAINED = f"""WriteToDataSourceV2 org.apache.spark.Write@1
+- *(8) HashAggregate(keys=[window#1], functions=[sum(total#2)])
   +- StateStoreSave [window#1], {info(0)} stateStoreCkptIds = None, Append, 0, 0, 2
      +- *(7) HashAggregate(keys=[window#1], functions=[merge_sum(total#2)])
         +- StateStoreRestore [window#1], {info(0)} stateStoreCkptIds = None, 2
            +- Exchange hashpartitioning(window#1, 6), ENSURE_REQUIREMENTS, [plan_id=1267]
               +- StateStoreSave [key#3], {info(1)}, Append, 0, 0, 2
                  +- StateStoreRestore [key#3], {info(1)}, 2
                     +- *(3) HashAggregate(keys=[key#3], functions=[partial_sum(value#4)])
                        +- StreamingDeduplicate [key#3, at#5], {info(2)}, 0, 0
                           +- Exchange hashpartitioning(key#3, at#5, 6), REQUIRED_BY_STATEFUL_OPERATOR
                              +- EventTimeWatermark at#5: timestamp, 1 minutes
                                 +- MicroBatchScan[key#3, value#4, at#5] JSON
"""


JOIN = f"""Project [key#1]
+- StreamingSymmetricHashJoin [key#1], [key#2], Inner, condition = [ leftOnly = null], {info(0)}, 0
   :- StateStoreSave [key#1], {info(1)}, Append
   :  +- Exchange hashpartitioning(key#1, 6)
   :     +- Project [key#1]
   :        +- MicroBatchScan[key#1] JSON
   +- Exchange hashpartitioning(key#2, 6)
      +- StateStoreSave [key#2, day#3], {info(2)}, Append
         +- Exchange hashpartitioning(key#2, day#3, 6)
            +- MicroBatchScan[key#2] JSON
"""


BOTH_SIDES = f"""Union
:- StateStoreSave [key#1], {info(0)}, Update
:  +- Exchange hashpartitioning(key#1, 6)
:     +- MicroBatchScan[key#1] JSON
+- Exchange hashpartitioning(key#2, 6)
   +- StreamingDeduplicate [key#2], {info(1)}, 0, 0
      +- Exchange hashpartitioning(key#2, 6)
         +- MicroBatchScan[key#2] JSON
"""


# A "!" marks a node that reads what its children do not have.
TRANSFORM = f"""WriteToDataSourceV2 org.apache.spark.Write@1
+- !TransformWithStateInPySpark count(key#1)#2, [key#1], Update, NoTime, {info(0)}, pandas, false
   :- *(2) Sort [key#1 ASC NULLS FIRST], false, 0
   :  +- Exchange hashpartitioning(key#1, 6), REQUIRED_BY_STATEFUL_OPERATOR, [plan_id=35]
   :     +- FileScan json [key#1]
   +- PlanLater LocalRelation <empty>
"""


SIDE_BY_SIDE = f"""StreamingSymmetricHashJoin [a#1], [b#2], Inner, {info(0)}
:- Exchange hashpartitioning(a#1, 6)
:  +- StateStoreSave [x#1], {info(1)}, Append
:     +- Exchange hashpartitioning(x#1, 6)
+- Exchange hashpartitioning(b#2, 6)
   +- StateStoreSave [y#2], {info(2)}, Append
      +- Exchange hashpartitioning(y#2, 6)
"""


@pytest.mark.parametrize(
    ("plan", "stages", "chained"),
    [
        (CHAINED, ((0,), (1, 2)), True),
        (JOIN, ((0, 1), (2,)), True),
        (TRANSFORM, ((0,),), True),
        (BOTH_SIDES, ((0,), (1,)), True),
        (SIDE_BY_SIDE, ((0,), (1,), (2,)), False),
        ("MicroBatchScan[key#1] JSON", (), True),
    ],
)
def test_operators_without_an_exchange_between_share_a_stage(plan, stages, chained):
    assert stages_of(plan) == (stages, chained)


@pytest.mark.parametrize(
    "text", ["\n", "\nx", "\n\n   y", "\r\n", "\n  StateStoreSave", "\nExchange", "\n : +", "\x0b-\u2028"]
)
def test_line_breaks_in_literals_and_names_are_no_nodes(text):
    plan = (
        CHAINED.replace(
            "*(3) HashAggregate(keys=[key#3]", f"*(3) HashAggregate(keys=[split(v, {text}, -1)#3]"
        )
        .replace("StateStoreSave [key#3]", f"StateStoreSave [split(v, {text}, -1)#3]")
        .replace("EventTimeWatermark at#5", f"Project [split(v, {text}) AS w#5, at#5]")
    )
    assert plan.count(text) >= 3
    assert stages_of(plan) == stages_of(CHAINED) == (((0,), (1, 2)), True)


@given(st.text(alphabet=" \n\rax,:[]()!*", max_size=30))
def test_whatever_a_literal_says_the_stages_are_the_same(literal):
    plan = CHAINED.replace("partial_sum(value#4)", f"partial_sum({literal})")
    assert stages_of(plan) == stages_of(CHAINED)


def test_an_operator_that_spark_runs_with_one_task_has_one_whatever_the_configured_number():
    """As of `dropDuplicates().groupBy().agg()`: the metadata says 6 partitions of both."""
    known = [StateOperator(0, "stateStoreSave", ("default",), 6), StateOperator(1, "dedupe", ("default",), 6)]
    plan = SIDE_BY_SIDE.replace("opId = 2", "opId = 9")
    found = layout(that_ran(known, {0: 1, 1: 6}, planned=True), plan)
    assert [str(t) for t in found.tasks] == ["0_0", "1_0", "1_1", "1_2", "1_3", "1_4", "1_5"]
    assert "1 partitions" in found.described[0]
    # Before there is a plan they are one subtopology, and only the first task has stores of both.
    early = layout(that_ran(known, {0: 1, 1: 6}, planned=False), None)
    assert len(early.tasks) == 6
    assert early.stores(TaskId(0, 0)) == ((0, 0, "default"), (1, 0, "default"))
    assert early.stores(TaskId(0, 5)) == ((1, 5, "default"),)


def test_before_the_first_batch_of_a_new_query_nobody_knows_what_runs():
    known = [StateOperator(0, "stateStoreSave", ("default",), 6)]
    assert that_ran(known, {0: 0}, planned=False) == ()
    assert that_ran(known, {0: 0}, planned=True) == tuple(known)
