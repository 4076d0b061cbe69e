"""What a checkpoint was made with, and what may continue it; no Spark needed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taskplace.errors import CheckpointError
from taskplace.spark.checkpoint.journal import Journal
from taskplace.spark.codec import sealed
from taskplace.spark.compile.programs import programs
from taskplace.spark.driver import structure
from taskplace.spark.processors import Aggregate, Deduplicate, Tumbling, count, max_, sum_
from topology import Topology


def build(by="string", extra=False, more=None, **aggregates):
    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=2)
    source.process(Aggregate("counts", by={"k": by}, **(aggregates or {"n": count()})), name="count").sink(
        "out"
    )
    if extra:
        topo.source("other", key=["k"], partitions=2).process(
            Aggregate("more", by=more or {"k": "string"}, n=count()), name="more"
        )
    built = topo.build()
    return built, programs(built)


def opened(root, built, programs):
    """Return the journal of a driver that has opened a checkpoint with a topology."""
    return Journal(
        root, {}, lambda last: structure.declare(root, built, programs, last.epoch if last else None)
    )


def committed(root, *topology):
    """Open a checkpoint with a topology, and commit a batch."""
    journal = opened(root, *topology)
    journal.commit(journal.last_batch + 1, 1, {}, {}, {})
    return journal


def databases(journal, programs):
    at = journal.declaration.incarnations
    stores = [(name, schema) for program in programs for name, schema in program.stores.items()]
    return {name: replace(schema, incarnation=at[name]).databases for name, schema in stores}


def windowed(size, grace="1 minute"):
    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=2, event_time="at")
    window = Tumbling("at", size, grace=grace)
    source.process(Aggregate("counts", by={"k": "string"}, window=window, n=count()), name="count")
    built = topo.build()
    return built, programs(built)


def forgetting(**how):
    topo = Topology("t")
    source = topo.source("s", key=["k"], partitions=2, event_time="at")
    source.process(Deduplicate("seen", by={"k": "string", "at": "timestamp"}, **how))
    built = topo.build()
    return built, programs(built)


def own(meaning=None):
    """Return a topology with a processor of the user's, in place of the aggregate of `build`."""

    class Own:
        def layouts(self):
            layout = {"key": {"k": "string"}, "value": {"n": "int64"}}
            return {"counts": layout | ({"meaning": meaning} if meaning else {})}

        def process(self, context, rows):
            return rows

    topo = Topology("t")
    topo.source("s", key=["k"], partitions=2).process(Own(), name="count").sink("out")
    built = topo.build()
    return built, programs(built)


SUMS = {"n": sum_("a", "int64"), "m": sum_("b", "int64")}
SWAPPED = {"n": sum_("b", "int64"), "m": sum_("a", "int64")}
CREATED = "store 'counts' was created with {}, and now has {}; .*layouts"
MEANINGS = "the meaning 'n': count_all", "no declared meaning"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (build(), build(), None),
        (build(), build(extra=True), None),
        (build(extra=True, **SUMS), build(**SUMS), None),
        (
            build(n=sum_("a", "int64")),
            build(n=max_("a", "int64")),
            "other values: 'n' was 'sum' and is 'max'\n",
        ),
        (
            build(**SUMS),
            build(**SWAPPED),
            "'column of m' was 'b' and is 'a'; 'column of n' .* only a new name",
        ),
        (build(), build(by="int64"), "the key column 'k' was string and is int64\n"),
        (build(), build(n=sum_("v", "int64"), m=count()), "the value column 'm' was missing and is int64\n"),
        (build(), build(m=count()), "the value column 'n' was int64 and is missing; the value column 'm'"),
        (windowed("1 hour"), windowed("1 hour", "5 minutes"), None),
        (windowed("1 hour"), windowed("1 day"), "'window' was '3600000 ms' and is '86400000 ms'"),
        (forgetting(ttl="1 day", time="at"), forgetting(ttl="2 days", time="at"), None),
        (forgetting(ttl="1 day", time="at"), forgetting(), "entries expired by at and expire by no column"),
        (build(), own(), CREATED.format(*MEANINGS)),
        (own(), build(), CREATED.format(*reversed(MEANINGS))),
        (build(), own(meaning={"n": "count_all"}), None),
        (own(meaning={"n": "count_all"}), build(), None),
    ],
)
def test_what_continues_a_checkpoint(tmp_path, before, after, says):
    """The sums of two columns would be added up, for example."""
    running = committed(tmp_path, *before)
    if says is None:
        opened(tmp_path, *after)
        return
    with pytest.raises(CheckpointError, match=says):
        opened(tmp_path, *after)
    running.commit(1, 1, {}, {}, {})  # nobody has taken over
    opened(tmp_path, *before)


def test_a_declaration_of_before_has_no_columns_of_aggregates_and_fits(tmp_path, monkeypatch):
    of_now = Aggregate.layouts

    def of_before(self):
        layouts = of_now(self)
        for layout in layouts.values():
            names = [name for name in layout["meaning"] if name.startswith("column of ")]
            layout["meaning"] = {k: v for k, v in layout["meaning"].items() if k not in names}
        return layouts

    with monkeypatch.context() as patched:
        patched.setattr(Aggregate, "layouts", of_before)
        committed(tmp_path, *build(n=sum_("a", "int64")))
    committed(tmp_path, *build(n=sum_("b", "int64")))
    with pytest.raises(CheckpointError, match="'column of n' was 'b' and is 'a'"):
        opened(tmp_path, *build(n=sum_("a", "int64")))


@pytest.mark.parametrize(
    ("split", "fits"), [({}, True), ({"counts": ("k",)}, True), ({"counts": ("x",)}, False)]
)
def test_state_stays_split_by_the_same_columns_if_the_declaration_has_them(
    tmp_path, monkeypatch, split, fits
):
    """Declarations of earlier releases have none."""
    with monkeypatch.context() as patched:
        patched.setattr(structure, "_split", lambda programs: split)
        committed(tmp_path, *build())
    if fits:
        opened(tmp_path, *build())
        return
    with pytest.raises(CheckpointError, match=r"store 'counts' was split by \(x\), .* split by \(k\)"):
        opened(tmp_path, *build())


def test_a_topology_binds_from_its_first_commit_on(tmp_path):
    first = opened(tmp_path, *build())
    opened(tmp_path, *build(by="int64"))  # nothing was committed with the first
    assert committed(tmp_path, *build()).declaration.id == first.declaration.id
    opened(tmp_path, *build(extra=True))
    committed(tmp_path, *build())  # taken back before it committed anything
    with pytest.raises(
        CheckpointError, match=r"store 'counts' has other columns: .*'k' was string and is int64"
    ):
        opened(tmp_path, *build(by="int64"))


def test_a_store_that_comes_back_is_another_one(tmp_path):
    def run(**what):
        built, found = build(**what)
        return databases(committed(tmp_path, built, found), found)

    assert run(extra=True) == {"counts": ("counts",), "more": ("more",)}
    assert run(extra=True) == {"counts": ("counts",), "more": ("more",)}
    assert run() == {"counts": ("counts",)}
    assert run(extra=True) == {"counts": ("counts",), "more": ("more~1",)}
    assert run(extra=True) == {"counts": ("counts",), "more": ("more~1",)}
    opened(tmp_path, *build())  # never commits
    assert run(extra=True) == {"counts": ("counts",), "more": ("more~1",)}


def test_a_driver_that_is_stopped_in_its_commit_binds_by_its_own_topology(tmp_path, monkeypatch):
    """It goes on after others have opened the checkpoint with other topologies, which never committed."""
    committed(tmp_path, *build())
    stopped = opened(tmp_path, *build(extra=True))

    def meanwhile(name):
        if name == "batch.checked":
            monkeypatch.undo()
            opened(tmp_path, *build())
            opened(tmp_path, *build())

    monkeypatch.setattr("taskplace.spark.checkpoint.journal.faults.point", meanwhile)
    stopped.commit(1, 1, {}, {}, {})
    with pytest.raises(CheckpointError, match="'more' has other columns"):
        built, found = build(extra=True, more={"k": "int64"})
        opened(tmp_path, built, found)
    built, found = build(extra=True)
    assert databases(opened(tmp_path, built, found), found)["more"] == ("more",)


def test_a_commit_while_another_driver_opens_is_seen_by_it(tmp_path):
    first = committed(tmp_path, *build())
    judged = []

    def declare(last):
        judged.append(last.batch)
        if len(judged) == 1:
            first.commit(1, 1, {}, {}, {})
        return structure.declare(tmp_path, *build(), last.epoch)

    assert Journal(tmp_path, {}, declare).last_batch == 1
    assert judged == [0, 1]


def test_a_new_checkpoint_that_two_drivers_open_has_one_id(tmp_path):
    ids = []

    def declare(last):
        found = structure.declare(tmp_path, *build(), None)
        if not ids:
            ids.append(opened(tmp_path, *build()).declaration.id)
        return found

    assert Journal(tmp_path, {}, declare).declaration.id == ids[0]


def test_declarations_are_pruned_with_the_manifests_that_name_them(tmp_path):
    for _ in range(5):
        committed(tmp_path, *build()).prune()
        opened(tmp_path, *build())
    assert sorted(path.name for path in (tmp_path / "epochs").iterdir()) == ["0000000009", "0000000010"]


def test_a_missing_declaration_beside_manifests_is_an_error(tmp_path):
    committed(tmp_path, *build())
    (tmp_path / "epochs" / "0000000001").unlink()
    with pytest.raises(CheckpointError, match=r"epochs/0000000001: the file is missing; .* of driver 1,"):
        opened(tmp_path, *build())


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"\xff" + sealed({}),
        sealed({"id": "x"}),
        sealed({"id": "x", "topology": 3, "stores": {}, "incarnations": {}}),
        sealed({"id": "x", "topology": {}, "stores": {}, "incarnations": {}}),
    ],
)
def test_a_damaged_declaration_is_named(tmp_path, text):
    committed(tmp_path, *build())
    (tmp_path / "epochs" / "0000000001").write_bytes(text)
    with pytest.raises(CheckpointError, match=f"{tmp_path}.*damaged"):
        opened(tmp_path, *build())
