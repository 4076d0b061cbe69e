"""The plan of internal topics against what exists: counts, clean-up policies, and whose a topic is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology import InternalTopics, Topology, TopologyError


def plan() -> InternalTopics:
    """Sources and a sink whose topics end as internal ones do."""
    topo = Topology("t")
    shipped = topo.source("orders-changelog", key="id", partitions=4)
    shipped.merge(topo.source("more-repartition", key="id", partitions=2), name="all")
    by_user = shipped.repartition("user", name="by-user")
    by_user.process(name="stats", stores=[{"name": "totals"}]).sink("out", target="sums-changelog")
    return topo.build().internal_topics()


AS_PLANNED = {"by-user-repartition": 4, "totals-changelog": 4}


def test_the_topologys_own_external_topics_are_never_unneeded() -> None:
    exists = {**AS_PLANNED, "orders-changelog": 4, "more-repartition": 2, "sums-changelog": 1}
    assert not plan().compare(exists)
    assert str(plan().compare(exists)) == "internal topics are as planned"


def test_a_topic_that_no_topology_would_make_is_not_this_ones() -> None:
    exists = {
        **AS_PLANNED,
        "-changelog": 1,
        "a b-changelog": 1,
        "..-repartition": 1,
        "notes": 1,
        "old-changelog": 1,
    }
    changes = plan().compare(exists)
    assert changes.unneeded == ("old-changelog",)
    assert str(changes) == "unneeded, if no other application's: old-changelog"


def test_with_a_prefix_only_the_applications_own_topics_count() -> None:
    exists = {f"shop-{name}": count for name, count in AS_PLANNED.items()}
    exists |= {"old-changelog": 1, "shop-old-changelog": 1, "shopping-old-changelog": 2, "shop--changelog": 1}
    changes = plan().compare({**exists, "shop-totals-changelog": 5}, prefix="shop-")
    assert [(t.name, found) for t, found in changes.differ] == [("shop-totals-changelog", 5)]
    assert changes.unneeded == ("shop-old-changelog",)
    assert "unneeded: shop-old-changelog" in str(changes)
    assert [t.name for t in plan().compare({}, prefix="x.").create] == [
        "x.by-user-repartition",
        "x.totals-changelog",
    ]


def test_clean_up_policies_are_compared_where_they_are_known() -> None:
    topo = Topology("t")
    topo.source("a", key="k", partitions=2).process(name="p", stores=[{"name": "s", "retention_ms": 5}])
    own = topo.build().internal_topics()
    for policy in ("compact,delete", "delete,compact", "delete, compact", None):
        assert not own.compare({"s-changelog": {"partitions": 2, "cleanup.policy": policy}})
    changes = own.compare({"s-changelog": {"partitions": 2, "cleanup.policy": "compact"}})
    assert changes
    assert str(changes) == "differs: s-changelog (cleanup.policy compact, expected compact,delete)"


@pytest.mark.parametrize(
    ("exists", "prefix", "message"),
    [
        (["a"], "", r"existing: found \['a'\], expected a mapping"),
        (None, "", "existing: found nothing, expected a mapping"),
        ({3: 1}, "", "existing: found 3, expected the name of a topic"),
        ({"a": "4"}, "", r"existing\['a'\]: found '4', expected a whole number >= 1"),
        ({"a": 0}, "", r"existing\['a'\]: found 0"),
        ({"a": {}}, "", r"existing\['a'\].partitions: missing"),
        ({"a": {"partitions": True}}, "", r"existing\['a'\].partitions: found true"),
        ({"a": {"partition": 1}}, "", "unknown field 'partition'; did you mean 'partitions'"),
        (
            {"a": {"partitions": 1, "cleanup.policy": "kompact"}},
            "",
            "cleanup.policy: found 'kompact', expected",
        ),
        ({"a": {"partitions": 1, "cleanup.policy": 3}}, "", "cleanup.policy: found 3, expected"),
        ({}, None, "prefix: found nothing, expected a string"),
    ],
)
def test_bad_metadata_is_one_error(exists: Any, prefix: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        plan().compare(exists, prefix=prefix)


@given(st.sampled_from(["", "app-", "x."]), st.dictionaries(st.text("ab.-", min_size=1), st.integers(1, 9)))
def test_what_exists_as_planned_is_as_planned_whatever_else_does(prefix: str, others: dict[str, int]) -> None:
    exists = {**others, **{prefix + name: count for name, count in AS_PLANNED.items()}}
    changes = plan().compare(exists, prefix=prefix)
    assert not (changes.create or changes.differ or changes.policies)
    assert set(changes.unneeded) <= {n for n in others if n.endswith(("-repartition", "-changelog"))}


def test_a_changelog_has_a_partition_per_task_whatever_its_sources_have() -> None:
    topo = Topology("t")
    narrow = topo.source("a", key="k", partitions=4)
    narrow.merge(topo.source("b", key="k", partitions=6), name="all").process(
        name="p", stores=[{"name": "s"}]
    )
    built = topo.build()
    [changelog] = built.internal_topics()
    assert (changelog.partitions, len(built.tasks())) == (6, 6)


def test_the_other_topics_are_those_of_external_sources_and_of_sinks() -> None:
    topo = Topology("t")
    rows = topo.source("in", key="k", partitions=2).repartition("l", name="again")
    rows.process(name="p", stores=[{"name": "s"}]).sink("o", target="out")
    rows.sink("p2", target=object())
    planned = topo.build().internal_topics()
    assert planned.others == {"in", "out"}
    assert {topic.name for topic in planned} == {"again-repartition", "s-changelog"}
