"""`taskplace run FILE --check` finds inputs that Spark cannot read as their format, and fields that no code reads."""

from __future__ import annotations

import copy
import gzip
import os
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
import yaml

pytest.importorskip("pyspark")

from taskplace.cli import main

ROWS = pa.table({"id": [1], "customer": ["a"]})
FILE = {
    "application": {"id": "orders"},
    "topology": {
        "sources": {"orders": {"key": "customer", "partitions": 2}},
        "nodes": {
            "n": {"process": "orders", "processor": "count", "options": {"by": {"customer": "string"}}},
            "out": {"sink": "n"},
        },
    },
    "input": {"orders": {"format": "parquet", "path": "in", "schema": "id long, customer string"}},
    "output": {"out": {"path": "out"}},
}


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()


def check(capsys, entry=None, source=None, spark=None) -> str:
    """Return the error of an input with these fields; "" for none."""
    document = copy.deepcopy(FILE)
    document["input"]["orders"] |= entry or {}
    document["topology"]["sources"]["orders"] |= source or {}
    document |= {"spark": {"conf": spark}} if spark else {}
    Path("app.yaml").write_text(yaml.safe_dump(document))
    code = main(["run", "app.yaml", "--check"])
    said = capsys.readouterr().err
    assert (code, bool(said)) in ((0, False), (2, True)), said
    return said.removeprefix("taskplace: ").strip()


def write(name: str, kind: str) -> None:
    path = Path(name)
    path.parent.mkdir(exist_ok=True, parents=True)
    if kind == "parquet":
        pq.write_table(ROWS, path)
    elif kind == "orc":
        orc.write_table(ROWS, path)
    else:
        texts = {
            "csv": "1,a\n",
            "json": '{"id": 1}\n',
            "xml": "<r/>",
            "yaml": "a: 1\n",
            "none": "",
            "list": "\n [{}]",
            "later": 'id\n{"id": 1}\n',
            "letters": "ORCHID,PAR1\n",
        }
        path.write_text(texts[kind])


@pytest.mark.parametrize("format_", ["parquet", "orc", "csv", "json", "text"])
def test_files_of_the_format_are_right(capsys, format_):
    write("in/a", {"text": "yaml"}.get(format_, format_))
    write("in/day=1/b", {"text": "csv"}.get(format_, format_))
    assert check(capsys, {"format": format_}) == ""


@pytest.mark.parametrize(
    ("format_", "kind", "name", "found"),
    [
        ("parquet", "yaml", "in/x.yaml", "text"),
        ("parquet", "csv", "in/day=1/_hidden=no/x", "text"),
        ("parquet", "csv", "in/day=1/archive/x", "text"),
        ("parquet", "json", "in/archive/day=1/x", "json"),
        ("parquet", "orc", "in/x.parquet", "orc"),
        ("orc", "parquet", "in/x.orc", "parquet"),
        ("csv", "parquet", "in/x", "parquet"),
        ("text", "orc", "in/x", "orc"),
        ("json", "csv", "in/x.json", "text"),
        ("json", "xml", "in/x.avsc", "xml"),
        ("json", "parquet", "in/x.json", "parquet"),
        ("json", "yaml", "in/x.yaml", "text"),
    ],
)
def test_a_file_of_another_format_is_named(capsys, tmp_path, format_, kind, name, found):
    write(name, kind)
    assert check(capsys, {"format": format_}) == (
        f"input.orders.path: found '{tmp_path / name}', expected {format_} files; this file begins like {found}"
    )


def test_a_file_instead_of_a_directory(capsys, tmp_path):
    assert check(capsys, {"path": "app.yaml"}) == (
        f"input.orders.path: found '{tmp_path}/app.yaml', expected parquet files; this file begins like text"
    )


@pytest.mark.parametrize(
    "name",
    [
        "in/_SUCCESS",
        "in/.x.crc",
        "in/_tmp/x.yaml",
        "in/.hidden/x.yaml",
        "in/x.none",
        "in/archive/old.csv",
        "in/x.parquet._COPYING_",
        "in/_spark_metadata/0",
    ],
)
def test_what_spark_does_not_read_does_not_matter(capsys, name):
    write(name, "none" if name.endswith("none") else "yaml")
    assert check(capsys) == ""


@pytest.mark.parametrize(
    ("format_", "options", "spark"),
    [
        ("parquet", {"pathGlobFilter": "*.parquet"}, {}),
        ("parquet", {"ignoreCorruptFiles": True}, {}),
        ("parquet", {}, {"spark.sql.files.ignoreCorruptFiles": "true"}),
        ("json", {"mode": "dropmalformed"}, {}),
        ("json", {"columnNameOfCorruptRecord": "customer"}, {}),
        ("json", {"encoding": "UTF-16"}, {}),
        ("json", {"allowComments": True}, {}),
        ("json", {"singleVariantColumn": "v"}, {}),
        ("json", {"lineSep": "|"}, {}),
        ("json", {}, {"spark.sql.columnNameOfCorruptRecord": "customer"}),
        ("parquet", {"pathGlobFilter": "[^x]*"}, {}),
    ],
)
def test_options_by_which_another_file_is_no_mistake(capsys, format_, options, spark):
    write("in/x.yaml", "yaml")
    assert check(capsys, {"format": format_, "options": options}, spark=spark) == ""


def test_other_directories_count_if_spark_reads_them(capsys, tmp_path):
    write("in/archive/old.csv", "csv")
    said = check(capsys, {"options": {"recursiveFileLookup": True}})
    assert said.startswith(
        f"input.orders.path: found '{tmp_path}/in/archive/old.csv', expected parquet files"
    )


@pytest.mark.parametrize(
    ("format_", "kind"), [("json", "later"), ("csv", "letters"), ("text", "letters"), ("json", "none")]
)
def test_what_may_be_right_passes(capsys, format_, kind):
    write("in/x", kind)
    assert check(capsys, {"format": format_}) == ""


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize(("format_", "text"), [("json", '{"id": 1}'), ("xml", "<r/>")])
def test_spark_finds_these_encodings_by_itself(capsys, format_, text, encoding):
    Path("in/x").write_bytes(text.encode(encoding))
    options = {"multiLine": True} if format_ == "json" else {"rowTag": "r"}
    assert check(capsys, {"format": format_, "options": options}) == ""


def test_a_column_for_lines_of_another_form(capsys):
    write("in/x", "csv")
    columns = "id long, customer string, _corrupt_record string"
    assert check(capsys, {"format": "json", "schema": columns}) == ""


@pytest.mark.parametrize("name", ["in/events", "in/day=1/events"])
def test_only_regular_files_are_opened(capsys, tmp_path, name):
    """Opening a pipe would wait for its writer."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    path.with_name("link").symlink_to(path)
    path.with_name("broken").symlink_to(tmp_path / "gone")
    path.with_name("device").symlink_to("/dev/zero")
    path.with_name("directory").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)  # the path of a socket must be short
        listening.bind("socket")
        os.chdir(tmp_path)
        assert check(capsys) == ""
        assert check(capsys, {"path": name}) == ""


def test_text_that_is_compressed_or_begins_with_blanks(capsys):
    Path("in/x.json.gz").write_bytes(gzip.compress(b'{"id": 1}'))
    write("in/y.json", "list")
    assert check(capsys, {"format": "json"}) == ""


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"format": "kafka"}, "path: found 'in', expected no path: the format kafka reads no files"),
        ({"format": "rate"}, "path: found 'in', expected no path: the format rate reads no files"),
        (
            {"format": "kafka", "path": None, "options": {"subscribe": "t"}},
            "options.kafka.bootstrap.servers: found nothing, expected kafka.bootstrap.servers, which the format kafka",
        ),
        (
            {"format": "kafka", "path": None, "options": {"kafka.bootstrap.servers": "b:1"}},
            "options.subscribe: found nothing, expected subscribe or subscribePattern or assign, which the format",
        ),
        (
            {"format": "socket", "path": None, "options": {"port": 1}},
            "options.host: found nothing, expected host, which the format socket needs",
        ),
    ],
)
def test_sources_without_files(capsys, entry, says):
    entry = {"schema": None, "select": ["cast(key as string) as customer"], **entry}
    assert check(capsys, entry).startswith(f"input.orders.{says}")


@pytest.mark.parametrize("schema", ["id long", {"id": "long"}, 1, None])
def test_columns_of_a_source_belong_in_its_input(capsys, schema):
    assert check(capsys, source={"schema": schema}) == (
        "topology.sources.orders.schema: found a misplaced key, expected it in `input.orders`: "
        "`input: {orders: {schema: ...}}`"
    )


def test_an_unknown_field_is_refused_at_every_level(capsys):
    """All but `options` of a source of Spark, and `conf`: those are Spark's own."""
    full = copy.deepcopy(FILE)
    full["topology"]["sources"]["orders"]["options"] = {"delay": "1 hour", "event_time": "at"}
    full["topology"]["nodes"]["n"]["options"]["window"] = {"column": "at", "size": "1 hour"}
    full["input"]["orders"] = {
        "kafka": {
            "topic": "t", "servers": "b:1", "key": {"format": "raw", "column": "customer", "kind": "string"},
            "value": {"format": "json", "columns": {"at": "timestamp"}},
        }
    }  # fmt: skip
    full["output"]["out"] = {"kafka": {"topic": "o", "servers": "b:1", "key": "customer"}}
    full |= {"checkpoint": {}, "state": {}, "runtime": {}, "placement": {}, "report": {}, "spark": {}}
    names = {
        "sources",
        "nodes",
        "input",
        "output",
        "columns",
        "by",
    }  # whose keys are names that the user gives
    for path in paths(full):
        if path and path[-1] in names:
            continue
        document = copy.deepcopy(full)
        inner = document
        for key in path:
            inner = inner[key]
        inner["unknwn"] = 1
        Path("app.yaml").write_text(yaml.safe_dump(document))
        assert main(["run", "app.yaml", "--check"]) == 2, path
        said = capsys.readouterr().err
        assert "unknwn: found an unknown " in said, (path, said)


def paths(value, path=()):
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
