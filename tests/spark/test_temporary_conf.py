"""Configuration of a session that holds for a block."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from taskplace.spark.bridge.queries import temporary_conf


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
