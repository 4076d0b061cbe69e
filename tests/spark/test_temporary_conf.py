"""Configuration of a session that holds for a block, and what a placed query gets of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from taskplace.spark.session_conf import query_properties
from taskplace.spark.temporary_conf import conf_of_a_placed_query, temporary_conf
from tests.spark.test_operators import write_events


class Conf(dict):
    """The configuration of a session, with the methods of Spark's."""

    def set(self, key, value):
        self[key] = value

    def unset(self, key):
        self.pop(key, None)


@pytest.fixture
def session():
    return SimpleNamespace(conf=Conf(kept="1", changed="old"))


def test_values_hold_for_the_block_only(session):
    with temporary_conf(session, {"changed": "new", "added": "2"}):
        assert session.conf == {"kept": "1", "changed": "new", "added": "2"}
    assert session.conf == {"kept": "1", "changed": "old"}


def test_values_are_restored_after_an_error(session):
    with pytest.raises(KeyError), temporary_conf(session, {"changed": "new", "added": "2"}):
        raise KeyError
    assert session.conf == {"kept": "1", "changed": "old"}


def test_a_value_that_spark_refuses_leaves_nothing_behind(session):
    def refuse(key, value):
        if key == "wrong":
            raise ValueError(key)
        session.conf[key] = value

    session.conf.set = refuse
    with pytest.raises(ValueError, match="wrong"), temporary_conf(session, {"added": "2", "wrong": "3"}):
        pytest.fail("the block must not run")
    assert session.conf == {"kept": "1", "changed": "old"}


def test_a_placed_query_gets_what_the_session_leaves_open(session):
    (first, _), *others = query_properties()
    session.conf[first] = "of the user"
    with conf_of_a_placed_query(session):
        assert session.conf[first] == "of the user"
        assert {name: session.conf[name] for name, _ in others} == dict(others)
    assert session.conf == {"kept": "1", "changed": "old", first: "of the user"}


def test_two_starts_at_once_leave_the_session_as_it_was(session):
    entered, leave = threading.Event(), threading.Event()

    def first():
        with conf_of_a_placed_query(session):
            entered.set()
            leave.wait(10)

    def second():
        with conf_of_a_placed_query(session):
            pass

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert session.conf == {"kept": "1", "changed": "old"}


@pytest.mark.spark
def test_a_query_of_placed_has_the_properties_and_its_session_not(pipeline, cluster, tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    write_events(events, 0)
    files = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(events))
    of_session = {name: cluster.conf.get(name, None) for name, _ in query_properties()}
    query = pipeline().placed.start({"events": files}, trigger={"availableNow": True})
    try:
        running = query.query._jsq.streamingQuery().sparkSessionForStream().conf()
        query.awaitTermination()
        found = {name: running.get(name) for name, _ in query_properties()}
    finally:
        query.stop()
    wanted = dict(query_properties())
    assert found == {name: of_session[name] or value for name, value in wanted.items()}
    assert {name: cluster.conf.get(name, None) for name in wanted} == of_session
