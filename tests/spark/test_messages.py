"""What crosses between processes or lies in files: it comes back as it was, what is wrong is named, old files open."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
import typing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, to_builtins
from msgspec.structs import fields, replace

from taskplace.errors import CheckpointError
from taskplace.spark import operator_messages  # noqa: F401 - its messages are tested as well
from taskplace.spark.checkpoint.manifests import read_manifest
from taskplace.spark.codec import Coded, TaskKey, sealed, unsealed
from taskplace.spark.messages import (
    AttemptDescriptor,
    Change,
    Declaration,
    FollowReport,
    History,
    Manifest,
    Meta,
    Position,
    Report,
    Snapshot,
    StagedFile,
)
from topology import TaskId

ROOT = Path(__file__).parents[2]


def kinds() -> list[type[Coded]]:
    """Return all messages."""
    found, left = [], [Coded]
    while left:
        left += (more := left.pop().__subclasses__())
        found += [kind for kind in more if kind.__struct_fields__]
    return sorted(set(found), key=lambda kind: kind.__name__)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
task_ids = st.builds(TaskId, st.integers(0, 30), st.integers(0, 2000))


def values(kind: typing.Any) -> st.SearchStrategy[typing.Any]:
    """Return values of a type that a field of a message has."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if kind is typing.Any:
        return plain
    if origin is typing.Literal:
        return st.sampled_from(of)
    if kind in (TaskKey, TaskId):
        return task_ids
    if kind is datetime:
        return st.datetimes(timezones=st.just(timezone.utc))
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if kind is int:
        return st.integers(-(2**63), 2**63 - 1)
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})
    if origin is tuple:
        if of[-1] is not Ellipsis:
            return st.tuples(*map(values, of))
        return st.lists(values(of[0]), max_size=3).map(tuple)
    if origin is list:
        return st.lists(values(of[0]), max_size=3)
    if len(of) == 2 and origin is not None and issubclass(origin, typing.Mapping):
        return st.dictionaries(values(of[0]), values(of[1]), max_size=3)
    return st.one_of(*map(values, of)) if of else st.from_type(kind)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was(kind):
    @settings(print_blob=True, deadline=None, max_examples=30)
    @given(values(kind))
    def check(message):
        assert kind.decode(message.encode()) == message
        assert kind.decode(unsealed(sealed(message))) == message
        assert kind.decode(unsealed(sealed(message, indent=1))) == message
        assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301

    check()


CHANGE = Change(3, "1-a", "1-b", 20, 10, "changelog/0000000015-1-ef.segment", 100, "ab", 4096)
SNAPSHOT = Snapshot(1, "1-c", 5, 5, "snapshots/0_1/0000000001-1-c.arrow", 50, "cd")
STAGED = StagedFile("batches/0000000003/sinks/out/0_1-1-a.parquet", 4, 40, "ef")
TASK = TaskId(0, 1)


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Change, {"version": 1}, "missing required field `attempt`"),
        (History, {"changes": [{"version": "1"}]}, r"Expected `int`, .* at `\$.changes\[0\].version`"),
        (History, {"changes": [], "more": 1}, "unknown field `more`"),
        (AttemptDescriptor, {"task": "0_1", "instance": "", "history": {}}, r"`array`, .* at `\$.task`"),
        (FollowReport, {"instance": "", "here": True, "copies": {"0-1": []}}, r"a task id .* `\$.copies`"),
        (Position, [1, "a", 2, 3], "at most length 3"),
        (Meta, {"fence": [1, None, 2]}, r"Expected `int`, got `null` - at `\$.fence\[1\]`"),
    ],
)
def test_what_is_wrong_with_a_message_is_named(kind, text, says):
    with pytest.raises(ValueError, match=says):
        kind.decode(json.dumps(text))


@given(st.binary(max_size=30))
def test_bytes_that_are_no_message_are_an_error_of_value_and_no_other(data):
    for kind in (Manifest, Declaration, Report, Meta):
        with pytest.raises(ValueError):
            kind.decode(data)
    with pytest.raises(ValueError):
        unsealed(data)


@pytest.mark.parametrize("value", [Path("f"), object(), 1j])
def test_what_no_message_has_is_not_written_as_some_text(value):
    with pytest.raises(NotImplementedError, match="a message cannot have a value of type"):
        replace(MANIFEST, identity={"query": value}).encode()


# -- files that were written before, and files that earlier versions read


ROLES = {"executor-1": {"active": ["0_1"], "standby": [], "warmup": []}}
PLAIN = {
    **{"batch": 3, "epoch": 2, "generation": 7, "assignment": ROLES, "event_times": {"flüge": 123}},
    **{"identity": {"hash": 1, "keys": {"flüge": ["string"]}, "query": None}, "needs": 1, "rows": 4},
    **{"watermark": None, "expired": {"s": -5}, "nonce": "ab12"},
}
MANIFEST = Manifest(
    changes={TASK: CHANGE},
    snapshots={TASK: (SNAPSHOT,)},
    sinks={"out": (STAGED,)},
    histories={TASK: History((CHANGE,), ())},
    held={TASK: {"s": None}},
    offsets=('{"in":{"0":3}}',),
    **PLAIN,
)
WRITTEN = {
    "schema": "taskplace.manifest/8",
    "changes": {"0_1": to_builtins(CHANGE)},
    "snapshots": {"0_1": [to_builtins(SNAPSHOT)]},
    "sinks": {"out": [to_builtins(STAGED)]},
    "histories": {"0_1": {"changes": [to_builtins(CHANGE)], "snapshots": []}},
    "held": {"0_1": {"s": None}},
    "offsets": ['{"in":{"0":3}}'],
    **PLAIN,
}


def sealed_before(body: object, indent: int | None = None) -> bytes:
    """Seal as taskplace has done it since manifests have seals: this is what all versions read."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    seal = hashlib.blake2b(canonical, digest_size=16).hexdigest()
    return json.dumps({"seal": seal, "body": body}, sort_keys=True, indent=indent).encode()


def test_a_manifest_has_the_form_of_version_8():
    assert json.loads(unsealed(sealed(MANIFEST))) == WRITTEN
    assert json.loads(sealed(MANIFEST)) == json.loads(sealed_before(WRITTEN))


@pytest.mark.parametrize("indent", [None, 1])
def test_a_manifest_that_was_written_before_is_read(tmp_path, indent):
    path = tmp_path / "0000000003.json"
    path.write_bytes(sealed_before(WRITTEN, indent))
    assert read_manifest(path) == MANIFEST


@settings(print_blob=True, deadline=None, max_examples=60)
@given(st.data())
def test_a_manifest_of_which_a_byte_is_changed_is_refused_or_means_the_same(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "0000000003.json"
    written = bytearray(data.draw(st.sampled_from([sealed(MANIFEST), sealed_before(WRITTEN, 1)])))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != written[at]))
    path.write_bytes(written)
    try:
        found = read_manifest(path)
    except CheckpointError as error:
        assert str(error).startswith(f"{path}: damaged manifest (")
        assert str(error).endswith("restore it from a backup, or start a new checkpoint in another directory")
    else:
        assert found == MANIFEST


# -- the layout


def test_executors_get_messages_without_spark_and_arrow():
    modules = "taskplace.spark.messages, taskplace.spark.operator_messages"
    script = f"import sys, {modules}; print({{'pyspark', 'py4j', 'pyarrow', 'lmdb'}} & set(sys.modules))"
    found = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True)
    assert found == "set()\n"
