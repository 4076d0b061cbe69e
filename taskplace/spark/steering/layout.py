"""What steering knows of a query of Spark: its settings, and its layout.

Reads the operators of a query, their stores and partitions, and which operators run in one stage.

Operators without an exchange between them run in the same stage. So their partition p is one task and runs in one
place: together they are a subtopology. If one store of a task were sent elsewhere than the others, Spark would
overrule it. The stages come from the text of the query's physical plan, the stores from the `state-metadata` data
source. Partitions are counted in the checkpoint, because the metadata has the configured number even for an operator
that Spark runs with one task, such as an aggregation without keys.

Non-goals: where tasks are (`bridge`), and where they belong (`target`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topology.tasks import TaskId

WORKS = "steering works with classic PySpark 3.5 to 4.3, not with Spark Connect"


@dataclass(frozen=True)
class SparkSettings:
    """The settings of Spark that steering depends on."""

    locality_wait_ms: int = 3000
    unload_on_commit: bool = False


_NODE = re.compile(r"^(?P<indent>(?:(?:   |:  )*[+:]- )?)(?:\*\(\d+\) )?[!']?(?P<name>\w+)")
_BREAK = re.compile(r"\n(?=(?:   |:  )*[+:]- )")
"""The line break before a node in a plan's text. Any other line break is in a literal, or in a name made of one."""
_OPERATOR = re.compile(r"state info \[.*?\bopId = (\d+)(?:.*?\bnumPartitions = (\d+))?")


@dataclass(frozen=True)
class StateOperator:
    """A stateful operator, as the `state-metadata` data source lists it, with its number of partitions."""

    id: int
    name: str
    stores: tuple[str, ...]
    partitions: int


@dataclass(frozen=True)
class QueryLayout:
    """The subtopologies of a query, the last of the data flow first. Each has the operators that share a stage.

    `chained`: every stage feeds the next one, so the order of stages identifies them.

    >>> agg = StateOperator(0, "stateStoreSave", ("default",), 2)
    >>> [str(task) for task in QueryLayout(((agg,),)).tasks]
    ['0_0', '0_1']
    """

    subtopologies: tuple[tuple[StateOperator, ...], ...] = ()
    chained: bool = True

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks, sorted."""
        return tuple(
            TaskId(number, partition)
            for number, operators in enumerate(self.subtopologies)
            for partition in range(_partitions(operators))
        )

    @property
    def described(self) -> tuple[str, ...]:
        """A line for each subtopology."""
        return tuple(
            f"subtopology {number}: {' and '.join(f'{op.name} ({op.id})' for op in operators)}, "
            f"{_partitions(operators)} partitions, {sum(len(op.stores) for op in operators)} stores each"
            for number, operators in enumerate(self.subtopologies)
        )

    def stores(self, task: TaskId) -> tuple[tuple[int, int, str], ...]:
        """Return (operator, partition, store) of all stores of a task. The first one shows where the task ran."""
        operators = self.subtopologies[task.subtopology]
        own = [op for op in operators if task.partition < op.partitions]
        return tuple((op.id, task.partition, store) for op in own for store in op.stores)


def _partitions(operators: Sequence[StateOperator]) -> int:
    return max(op.partitions for op in operators)


def that_ran(
    operators: Sequence[StateOperator], ran: Mapping[int, int], *, planned: bool
) -> tuple[StateOperator, ...]:
    """Return the operators with the number of partitions that they run with.

    `ran`: for each operator, the partitions with a directory in the checkpoint. `planned`: a batch has ended, so all
    directories exist. Before that, an operator without any is left out, since its number of tasks is unknown.

    >>> total = StateOperator(0, "stateStoreSave", ("default",), 200)
    >>> that_ran([total], {0: 1}, planned=True)[0].partitions
    1
    >>> that_ran([total], {}, planned=False)
    ()
    """
    return tuple(
        replace(op, partitions=min(ran.get(op.id) or op.partitions, op.partitions))
        for op in operators
        if planned or ran.get(op.id)
    )


def read_operators(rows: Sequence[Mapping[str, object]]) -> tuple[StateOperator, ...]:
    """Return the operators in rows of the `state-metadata` data source, sorted by id.

    >>> row = {"operatorId": 0, "operatorName": "symmetricHashJoin", "numPartitions": 3}
    >>> read_operators([{**row, "stateStoreName": "right"}, {**row, "stateStoreName": "left"}])
    (StateOperator(id=0, name='symmetricHashJoin', stores=('left', 'right'), partitions=3),)
    """
    operators: dict[int, tuple[str, int, set[str]]] = {}
    for row in rows:
        number = int(str(row["operatorId"]))
        new = (str(row["operatorName"]), int(str(row["numPartitions"])), set[str]())
        operators.setdefault(number, new)[2].add(str(row["stateStoreName"]))
    return tuple(
        StateOperator(number, name, tuple(sorted(stores)), partitions)
        for number, (name, partitions, stores) in sorted(operators.items())
    )


def operators_in(plan: str, names: Callable[[int], Iterable[str]]) -> tuple[StateOperator, ...]:
    """Return the operators in the text of a plan, for Spark 3.5, which keeps no metadata of them.

    `names`: what is in the directory of an operator's first partition. A store that has a name is a directory there.

    >>> operators_in("StateStoreSave [k], state info [ opId = 0, ver = 1, numPartitions = 2]", lambda operator: ())
    (StateOperator(id=0, name='stateStoreSave', stores=('default',), partitions=2),)
    """
    found: dict[int, StateOperator] = {}
    for line in _BREAK.split(plan):
        node, operator = _NODE.match(line), _OPERATOR.search(line)
        if node and operator and int(operator[1]) not in found:  # an aggregation is two nodes with one id
            number, name = int(operator[1]), node["name"]
            stores = [name for name in names(number) if re.match(r"(left|right)-", name)] or ["default"]
            found[number] = StateOperator(
                number, name[0].lower() + name[1:], tuple(sorted(stores)), int(operator[2])
            )
    return tuple(found[number] for number in sorted(found))


def stages_of(plan: str) -> tuple[tuple[tuple[int, ...], ...], bool]:
    """Return the ids of stateful operators by stage, the last stage first, and whether the stages form a chain.

    `plan` is the text of a physical plan, children indented below their parent, each behind a "+- " or ":- ".

    >>> plan = '''StateStoreSave [k], state info [ checkpoint = c, runId = r, opId = 0, ver = 1]
    ... +- Exchange hashpartitioning(k, 2)
    ...    +- StreamingDeduplicate [k], state info [ checkpoint = c, runId = r, opId = 1, ver = 1]'''
    >>> stages_of(plan)
    (((0,), (1,)), True)
    """
    stages: list[list[int]] = [[]]
    parents: list[int] = [-1]  # of each stage: the stage it feeds
    path: list[tuple[int, int, bool]] = []  # indent, stage and "is an exchange" of the nodes above
    for line in _BREAK.split(plan):
        node = _NODE.match(line)
        if node is None:
            continue
        indent = len(node["indent"])
        while path and path[-1][0] >= indent:
            path.pop()
        stage = path[-1][1] if path else 0
        if path and path[-1][2]:
            stages.append([])
            parents.append(stage)
            stage = len(stages) - 1
        operator = _OPERATOR.search(line)
        if operator and int(operator[1]) not in stages[stage]:
            stages[stage].append(int(operator[1]))
        path.append((indent, stage, "Exchange" in node["name"]))
    stateful = [stage for stage, operators in enumerate(stages) if operators]
    return tuple(tuple(stages[stage]) for stage in stateful), _chain(stateful, parents)


def _chain(stateful: Sequence[int], parents: Sequence[int]) -> bool:
    """Return whether each stateful stage feeds, at some distance, all stages before it in the list."""
    for before, stage in itertools.pairwise(stateful):
        above = stage
        while above not in (before, -1):
            above = parents[above]
        if above != before:
            return False
    return True


def layout(operators: Sequence[StateOperator], plan: str | None) -> QueryLayout:
    """Return the layout of a query. Without a plan, before the first batch, all operators are one subtopology.

    That is safe: operators that share a stage then share a place.

    >>> agg, dedup = StateOperator(0, "stateStoreSave", ("default",), 2), StateOperator(1, "dedupe", ("default",), 2)
    >>> len(layout([agg, dedup], None).subtopologies)
    1
    """
    by_id = {operator.id: operator for operator in operators}
    if plan is None:
        return QueryLayout((tuple(by_id.values()),) if by_id else (), chained=False)
    stages, chained = stages_of(plan)
    groups = [tuple(by_id[number] for number in stage if number in by_id) for stage in stages]
    return QueryLayout(tuple(group for group in groups if group), chained)
