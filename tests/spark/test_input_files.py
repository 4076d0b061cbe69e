"""`taskplace run FILE --check` finds inputs that Spark cannot read as their format, and fields that no code reads."""

from __future__ import annotations

import copy
import gzip
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
        ("parquet", "yaml", "in/x.yaml", "a yaml file"),
        ("parquet", "csv", "in/day=1/_hidden=no/x", "another file"),
        ("parquet", "orc", "in/x.parquet", "an orc file"),
        ("orc", "parquet", "in/x.orc", "a parquet file"),
        ("csv", "parquet", "in/x", "a parquet file"),
        ("text", "orc", "in/x", "an orc file"),
        ("json", "csv", "in/x.csv", "a csv file"),
        ("json", "parquet", "in/x.json", "a parquet file"),
        ("json", "yaml", "in/x.yaml", "a yaml file"),
    ],
)
def test_a_file_of_another_format_is_named(capsys, tmp_path, format_, kind, name, found):
    write(name, kind)
    assert check(capsys, {"format": format_}) == (
        f"input.orders.path: found '{tmp_path / name}, {found}', expected {format_} files"
    )


def test_a_file_instead_of_a_directory(capsys, tmp_path):
    assert check(capsys, {"path": "app.yaml"}) == (
        f"input.orders.path: found '{tmp_path}/app.yaml, a yaml file', expected parquet files"
    )


@pytest.mark.parametrize(
    "name", ["in/_SUCCESS", "in/.x.crc", "in/_tmp/x.yaml", "in/.hidden/x.yaml", "in/x.none"]
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
    ],
)
def test_options_by_which_another_file_is_no_mistake(capsys, format_, options, spark):
    write("in/x.yaml", "yaml")
    assert check(capsys, {"format": format_, "options": options}, spark=spark) == ""


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
