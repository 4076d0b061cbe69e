"""A query starts with properties of its own, and the session keeps its values."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from taskplace.spark.bridge import start_query
from taskplace.spark.bridge.queries import temporary_conf
from taskplace.spark.session_conf import query_properties
from tests.spark.test_operators import write_events

WANTED = {one.name: one.value for one in query_properties()}


class Conf(dict):
    """The configuration of a session, with the methods of Spark's."""

    def set(self, key, value):
        self[key] = value

    def unset(self, key):
        self.pop(key, None)


class Writer:
    """A writer whose query keeps the configuration that it found: its own, and that of its sources."""

    def __init__(self, session, fails=None):
        self.session, self.fails = session, fails
        self._jsq = SimpleNamespace(streamingQuery=lambda: self)

    def start(self):
        self.own = dict(self.session.conf)
        return self

    def awaitInitialization(self, milliseconds):
        assert milliseconds > 0
        self.of_sources = dict(self.session.conf)
        if self.fails:
            raise self.fails


@pytest.fixture
def session():
    return SimpleNamespace(conf=Conf(kept="1"))


def test_query_and_sources_get_what_the_session_leaves_open(session):
    query = start_query(Writer(session), session)
    assert query.own == query.of_sources == {"kept": "1", **WANTED}
    assert session.conf == {"kept": "1"}


def test_what_the_user_has_set_stays(session):
    own = {"kept": "1", next(iter(WANTED)): "of the user"}
    session.conf.update(own)
    assert start_query(Writer(session), session).own == {**WANTED, **own}
    assert session.conf == own


def test_the_error_of_a_query_is_left_to_its_handle(session):
    query = start_query(Writer(session, fails=Py4JError("no such path")), session)
    assert query.own == {"kept": "1", **WANTED}
    assert session.conf == {"kept": "1"}


def test_two_starts_at_once_leave_the_session_as_it_was(session):
    entered, leave = threading.Event(), threading.Event()

    class Slow(Writer):
        def awaitInitialization(self, milliseconds):
            entered.set()
            leave.wait(10)

    threads = [threading.Thread(target=start_query, args=(kind(session), session)) for kind in (Slow, Writer)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert session.conf == {"kept": "1"}


@pytest.mark.parametrize("fails", [False, True])
def test_a_temporary_configuration_ends_with_its_block(session, fails):
    session.conf["changed"] = "old"
    with suppress(KeyError), temporary_conf(session, {"changed": "new", "added": "2"}):
        assert session.conf == {"kept": "1", "changed": "new", "added": "2"}
        if fails:
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
    assert session.conf == {"kept": "1"}


@pytest.mark.spark
def test_a_query_of_placed_has_the_properties_and_its_session_not(pipeline, cluster, tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    write_events(events, 0)
    files = cluster.readStream.schema("key string, `group` string, value bigint").parquet(str(events))
    of_session = {name: cluster.conf.get(name, None) for name in WANTED}
    query = pipeline().placed.start({"events": files}, trigger={"availableNow": True})
    try:
        running = query.query._jsq.streamingQuery().sparkSessionForStream().conf()
        query.awaitTermination()
        found = {name: running.get(name) for name in WANTED}
    finally:
        query.stop()
    assert found == {name: of_session[name] or value for name, value in WANTED.items()}
    assert {name: cluster.conf.get(name, None) for name in WANTED} == of_session
