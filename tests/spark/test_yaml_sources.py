"""Sources in YAML become streaming data frames, or one error with the path."""

from __future__ import annotations

import pytest

from taskplace.errors import ConfigError


def declared(entry):
    from taskplace.spark.yaml_application import YamlApplication
    from taskplace.spec.application import Settings

    return YamlApplication(
        Settings.from_mapping(
            {
                "application": {"id": "t"},
                "topology": {"sources": {"a": {"key": "k", "partitions": 2}}},
                "input": {"a": entry},
            }
        )
    )


@pytest.mark.spark
def test_sources_in_yaml_become_streaming_data_frames(spark):
    entry = {"format": "rate", "options": {"rowsPerSecond": 1}, "select": ["value % 10 as k", "value"]}
    (df,) = declared(entry).sources(spark).values()
    assert df.isStreaming
    assert df.columns == ["k", "value"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("entry", "path", "says"),
    [
        ({"format": "com.no.such.Source"}, r"input\.a", "com.no.such.Source"),
        ({"format": "rate", "select": ["valu as k"]}, r"input\.a", "valu"),
        (
            {"format": "rate", "options": {"rowsPerSecond": 0}, "select": ["value as k"]},
            r"input\.a",
            "rowsPerSecond",
        ),
        (
            {"format": "json", "path": "in", "schema": "k string comment 'a', b strng"},
            r"input\.a\.schema\.b",
            "found 'strng', expected a Spark type; did you mean 'string'?",
        ),
    ],
)
def test_what_spark_cannot_read_is_one_error_with_the_path(spark, entry, path, says):
    with pytest.raises(ConfigError, match=rf"^{path}: found ") as caught:
        declared(entry).sources(spark)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
