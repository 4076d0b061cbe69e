"""The bins of a stage: each task in one, none too large, never rows of a task that is not in it; what tasks cost."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.cluster import Executor
from taskplace.spark.driver.bins import (
    BINS_PER_SLOT,
    BYTES_PER_RECORD,
    ENOUGH_BYTES,
    EXPANSION_BATCHES,
    MAX_BYTES,
    PRICE_OF_A_TASK,
    SECONDS_WORTH_A_BIN,
    SLOTS_ANYWHERE,
    WORTH_A_BIN,
    TaskCosts,
    cut,
    owner_order,
    shuffle_order,
)
from taskplace.spark.messages import Recovery, Report, TopicRead
from topology import TaskId

EXECUTORS = [Executor(str(i), "host", cores) for i, cores in enumerate((1, 2, 4))]


@st.composite
def stages(draw):
    """Owners, sizes, work, the tasks that run, and an order that belongs to other owners as often as to these."""
    number = draw(st.integers(1, 40))
    owners = draw(
        st.lists(st.sampled_from([*EXECUTORS, None]), min_size=number, max_size=number).map(
            lambda drawn: dict(enumerate(drawn))
        )
    )
    size = st.one_of(st.just(0), st.integers(1, WORTH_A_BIN), st.integers(1, 2 * MAX_BYTES))
    sizes = draw(st.lists(size, min_size=number, max_size=number))
    costly = draw(st.lists(st.one_of(st.just(0), size), min_size=number, max_size=number))
    work = [max(of) for of in zip(sizes, costly, strict=True)]
    running = {p for p in range(number) if draw(st.booleans())}
    before = draw(st.permutations(range(number)))
    grouped = shuffle_order([(str(owners[p] and owners[p].id),) for p in range(number)])
    return owners, sizes, work, running, draw(st.sampled_from([tuple(before), grouped]))


@given(stages())
def test_each_task_is_in_one_bin_that_has_its_rows_and_names_all_others(stage):
    owners, sizes, work, running, order = stage
    bins = cut(order, owners, sizes, running=running, work=work)
    assert sorted(p for bin_ in bins for p in bin_.partitions) == sorted(running)
    for bin_ in bins:
        assert {owners[p] for p in bin_.partitions} == {bin_.owner}
        others = {p for p in order[bin_.start : bin_.end] if sizes[p]} - set(bin_.partitions)
        assert bin_.skipped == tuple(sorted(others))
        assert set(bin_.partitions) <= set(order[bin_.start : bin_.end])
        assert bin_.work == sum(work[p] + PRICE_OF_A_TASK for p in bin_.partitions)
        space = sum(sizes[p] + PRICE_OF_A_TASK for p in bin_.partitions)
        assert len(bin_.partitions) == 1 or space <= MAX_BYTES
    assert [bin_.work for bin_ in bins] == sorted((bin_.work for bin_ in bins), reverse=True)


@given(st.integers(1, 300), st.integers(1, 3), st.integers(0, WORTH_A_BIN))
def test_without_a_shuffle_the_tasks_of_an_owner_share_bins_however_they_lie(number, instances, size):
    """The owners take turns. The largest partition has no task that runs, and its rows split no bin."""
    running = range(number - 1)
    owners = {p: EXECUTORS[p % instances] for p in running}
    sizes = [size] * (number - 1) + [MAX_BYTES]
    bins = cut(owner_order(owners), owners, sizes, running=running)
    assert sorted(p for bin_ in bins for p in bin_.partitions) == list(running)
    assert all({owners[p] for p in bin_.partitions} == {bin_.owner} for bin_ in bins)
    for owner in set(owners.values()):
        mine = [bin_.work for bin_ in bins if bin_.owner == owner]
        if sum(mine) <= MAX_BYTES // 2:
            assert len(mine) <= BINS_PER_SLOT * owner.cores


@given(
    st.lists(
        st.one_of(st.integers(0, WORTH_A_BIN), st.integers(0, 500 * WORTH_A_BIN)), min_size=1, max_size=200
    ),
    st.integers(1, 16),
)
def test_costly_tasks_share_no_more_than_a_slots_part(work, cores):
    """Few bytes, so the limit of memory asks for nothing."""
    owner, total = Executor("a", "host", cores), sum(of + PRICE_OF_A_TASK for of in work)
    tasks, sizes = range(len(work)), [0] * len(work)
    bins = cut(tasks, dict.fromkeys(tasks, owner), sizes, running=tasks, work=work)
    assert sorted(p for bin_ in bins for p in bin_.partitions) == list(tasks)
    assert len(bins) <= BINS_PER_SLOT * cores
    if total <= WORTH_A_BIN:
        assert len(bins) == 1
    if len(work) >= BINS_PER_SLOT * cores and total >= BINS_PER_SLOT * cores * WORTH_A_BIN:
        assert all(bin_.work <= total / cores + 1 for bin_ in bins if len(bin_.partitions) > 1)


def test_after_a_loss_the_tasks_of_each_standby_are_neighbours():
    hosts = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "b"), ("a", "c"), ("c", "a")]
    order = shuffle_order(hosts)
    sizes = [WORTH_A_BIN] * 6
    first = cut(order, {p: Executor(hosts[p][0], "h", 1) for p in range(6)}, sizes, running=range(6))
    assert {bin_.owner.id: len([b for b in first if b.owner == bin_.owner]) for bin_ in first} == {
        "a": 2,
        "b": 1,
        "c": 1,
    }
    lost = [p for p in range(6) if hosts[p][0] == "a"]
    small = [WORTH_A_BIN // 8 if p in lost else WORTH_A_BIN for p in range(6)]
    again = cut(order, {p: Executor(hosts[p][1], "h", 1) for p in lost}, small, running=lost)
    assert sorted((bin_.owner.id, bin_.partitions) for bin_ in again) == [("b", (0, 3)), ("c", (1, 4))]


@given(
    st.lists(
        st.tuples(st.integers(0, WORTH_A_BIN // 4), st.sampled_from([EXECUTORS[0], EXECUTORS[2], None])),
        min_size=1,
        max_size=500,
    ),
    st.data(),
)
def test_however_the_tasks_lie_an_owner_has_few_bins_and_they_drop_few_rows(tasks, data):
    """Some have finished, and an executor that takes over has its tasks among those of others."""
    number, every = len(tasks), data.draw(st.integers(1, 4))
    sizes, owners = [size for size, _ in tasks], {p: owner for p, (_, owner) in enumerate(tasks)}
    if data.draw(st.booleans()):
        sizes[data.draw(st.integers(0, number - 1))] = MAX_BYTES  # costs more to drop than a bin
    running = range(0, number, every)
    bins = cut(range(number), owners, sizes, running=running)
    for owner in set(owners.values()):
        mine = [bin_ for bin_ in bins if bin_.owner == owner]
        space = sum(sizes[p] + PRICE_OF_A_TASK for bin_ in mine for p in bin_.partitions)
        most = BINS_PER_SLOT * (owner.cores if owner else SLOTS_ANYWHERE)
        dear = sum(sizes) // WORTH_A_BIN
        assert len(mine) <= 2 * most + dear + 3 * space // MAX_BYTES
    for bin_ in bins:
        dropped, gaps = sum(sizes[p] for p in bin_.skipped), len(bin_.partitions) - 1
        assert dropped <= gaps * WORTH_A_BIN


def test_bins_of_an_owner_with_few_ranges_drop_nothing():
    bins = cut(range(9), dict.fromkeys(range(9), EXECUTORS[2]), [9] * 9, running=range(0, 9, 2))
    assert [(bin_.partitions, bin_.skipped) for bin_ in bins] == [((p,), ()) for p in range(0, 9, 2)]


@pytest.mark.parametrize(("sizes", "ranges"), [([9, 0, 9], [(0, 3)]), ([9, 9, 9], [(0, 1), (2, 3)])])
def test_a_range_goes_on_behind_a_task_that_has_no_rows_and_does_not_run(sizes, ranges):
    bins = cut(range(3), dict.fromkeys(range(3), EXECUTORS[0]), sizes, running=(0, 2))
    assert sorted((bin_.start, bin_.end) for bin_ in bins) == ranges


def bins_of(weights: list[int], cores: int = 1) -> list[tuple[int, ...]]:
    """Return the tasks of each bin of one owner, in the order of the shuffle; `weights` have the price of a task."""
    tasks = range(len(weights))
    owners = dict.fromkeys(tasks, Executor("a", "host", cores) if cores >= 0 else None)
    bins = cut(tasks, owners, [weight - PRICE_OF_A_TASK for weight in weights], running=tasks)
    return sorted(bin_.partitions for bin_ in bins)


HALF = WORTH_A_BIN // 2


@pytest.mark.parametrize(
    ("weights", "cores", "number"),
    [
        ([HALF, HALF], 1, 1),
        ([HALF, HALF + 1], 1, 2),
        ([WORTH_A_BIN] * 12, 1, BINS_PER_SLOT),
        ([WORTH_A_BIN] * 12, 0, BINS_PER_SLOT),
        ([WORTH_A_BIN] * 12, 3, 3 * BINS_PER_SLOT),
        ([WORTH_A_BIN] * 12, -1, SLOTS_ANYWHERE * BINS_PER_SLOT),
        ([MAX_BYTES // 8] * 14, 1, 2),
        ([MAX_BYTES // 8] * 15, 1, 3),
        ([MAX_BYTES // 2] * 6, 1, 6),
        ([MAX_BYTES] * 2, 1, 2),
    ],
)
def test_how_many_bins_an_owner_gets(weights, cores, number):
    assert len(bins_of(weights, cores)) == number


@pytest.mark.parametrize(("more", "bins"), [(0, [(0, 1), (2,)]), (1, [(0,), (1,), (2,)])])
def test_a_bin_of_several_tasks_may_be_as_large_as_the_limit_and_no_larger(more, bins):
    """The last task is so large that the others together are below the average."""
    assert bins_of([MAX_BYTES // 4, MAX_BYTES // 4 * 3 + more, 2 * MAX_BYTES]) == bins


def test_a_task_is_in_the_bin_in_which_the_middle_of_its_work_lies():
    kilo = WORTH_A_BIN // 4
    assert bins_of([3 * kilo, 2 * kilo, 3 * kilo]) == [(0,), (1, 2)]  # the middle of task 1 is the border
    assert bins_of([3 * kilo - 2, 2 * kilo, 3 * kilo + 2]) == [(0, 1), (2,)]


# -- what is expected of tasks: by their input, and by what their last attempts have cost


TASK, OTHER = TaskId(0, 0), TaskId(0, 1)


class Stream:
    """One task and its attempts."""

    def __init__(self) -> None:
        self.costs = TaskCosts()

    def work(self, size: int, records: int = 0) -> int:
        """Return the work that is expected of the task's next attempt."""
        return self.costs.estimates([TASK], [size], {0: records}).work[0]

    def run(
        self, size: int, seconds: float, *, records: int = 0, fetched: int = 0, read: int = 0, **laps: float
    ) -> None:
        expected = self.costs.estimates([TASK], [size], {0: records})
        rows = {"t": TopicRead("id", rows=read)} if read else {}
        laps = {"process": seconds, **laps}
        self.costs.count([report(TASK, laps, brought=size, fetched=fetched, read=rows)], expected)


def report(task: TaskId, seconds: dict[str, float], **what: object) -> Report:
    return Report(task, "a", "", "", None, {}, {}, 0, Recovery(), seconds, **what)


def worth(seconds: float) -> float:
    """Return seconds as input that takes as long."""
    return pytest.approx(seconds / SECONDS_WORTH_A_BIN * WORTH_A_BIN, abs=2)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], {0: 0, 7: 7, 5 * WORTH_A_BIN: 5 * WORTH_A_BIN}),  # the input counts
        ([(1000, 2.0)], {1000: worth(2.0), 100 * WORTH_A_BIN: 100 * WORTH_A_BIN}),
        ([(1000, 2.0), (1000, 0.0)], {1000: 1000}),
        ([(10_000, 2.0)], {1000: worth(0.2), 20_000: worth(2.0)}),  # more input is not guessed
        ([(1000, 2.0), (0, 0.001)] * 3, {1000: worth(2.0), 0: worth(0.001)}),  # batches without rows apart
        ([(1000, 2.0), (1000, 0.1)], {1000: worth(0.1)}),  # the slow first attempt is forgotten
        ([(1000, 2.0), (1000, 0.1), (1000, 0.3)], {1000: worth(0.2)}),  # a slower one counts by half
    ],
)
def test_a_task_counts_by_its_input_and_by_the_seconds_of_its_last_attempts(runs, expected):
    stream = Stream()
    for size, seconds in runs:
        stream.run(size, seconds)
    assert {size: stream.work(size) for size in expected} == expected


@given(st.integers(1, 10), st.booleans())
def test_small_batches_between_large_ones_do_not_hide_their_cost(pairs, small_last):
    stream = Stream()
    for _ in range(pairs):
        stream.run(1_000_000, 5.0)
        stream.run(100, 0.001)
    if not small_last:
        stream.run(1_000_000, 5.0)
    assert stream.work(1_000_000) > 1.6 / SECONDS_WORTH_A_BIN * WORTH_A_BIN
    assert stream.work(100) < WORTH_A_BIN / 10


def test_bringing_a_copy_to_its_base_does_not_count():
    stream = Stream()
    stream.run(1000, 0.2, position=30.0, read=0)
    assert stream.work(1000) == worth(0.2)


def test_records_that_a_task_reads_itself_count_by_the_size_of_the_last_ones():
    """Spark brings one row, the range, however many records it has."""
    stream = Stream()
    assert stream.work(50, records=100_000) == 50 + 100_000 * BYTES_PER_RECORD
    stream.run(50, 0.0, records=10, fetched=30_000, read=10)
    assert stream.work(50, records=1000) == 50 + 1000 * 3000
    assert stream.work(50) == 50, "how many there are is not known"
    assert stream.work(0, records=1000) == 0, "without a range there is nothing to read"


def test_the_worst_known_expansion_counts_for_all_tasks_of_a_subtopology():
    costs, sizes = TaskCosts(), [ENOUGH_BYTES, ENOUGH_BYTES]
    for brought, space in ((3 * ENOUGH_BYTES, 3), (ENOUGH_BYTES // 2, 3), (ENOUGH_BYTES, 1)):
        expected = costs.estimates([TASK, OTHER], sizes)
        costs.count([report(TASK, {}, brought=brought)], expected)
        after = costs.estimates([TASK, OTHER], sizes)
        assert after.space == [space * ENOUGH_BYTES] * 2
        assert after.sizes == after.work == sizes
    costs.count(
        [report(TASK, {}, brought=ENOUGH_BYTES)], costs.estimates([TASK, OTHER], [2 * ENOUGH_BYTES] * 2)
    )
    assert costs.estimates([TASK, OTHER], sizes).space == sizes, "never less than what Spark says"
    assert costs.estimates([TaskId(1, 0)], [10]).space == [10]


def test_an_expansion_that_is_not_seen_again_is_forgotten():
    """The task may never bring as much again, and the bins of all tasks would stay small."""
    costs, sizes = TaskCosts(), [ENOUGH_BYTES, ENOUGH_BYTES]

    def run(task: TaskId, brought: int) -> float:
        costs.count([report(task, {}, brought=brought)], costs.estimates([TASK, OTHER], sizes))
        return costs.estimates([TASK, OTHER], sizes).space[0] / ENOUGH_BYTES

    assert run(TASK, 9 * ENOUGH_BYTES) == 9
    for _ in range(1000):
        costs.count([report(TaskId(1, 0), {}, brought=10)], costs.estimates([TaskId(1, 0)], [10]))
    for number in range(1, EXPANSION_BATCHES):
        assert run(TASK if number % 2 else OTHER, 10) == 9
    assert run(TASK, 10) == 1
    assert run(TASK, 4 * ENOUGH_BYTES) == 4
    for _ in range(2 * EXPANSION_BATCHES):
        assert run(TASK, 3 * ENOUGH_BYTES) == 3, "a task that shows it again keeps it"


def test_estimates_are_by_partition_and_a_stage_may_have_no_tasks():
    assert astuple(TaskCosts().estimates([], [])) == ([], [], [], [])
    costs = TaskCosts()
    expected = costs.estimates([TASK, OTHER], [10, 20])
    costs.count([report(OTHER, {"process": 1.0})], expected)
    assert costs.estimates([TASK, OTHER], [10, 20]).work == [10, worth(1.0)]
