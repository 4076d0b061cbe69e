"""What YAML 1.1 reads as something else than it looks like, and documents that contain themselves or have no end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from taskplace.spec.application import Settings

from taskplace.errors import ConfigError, InputError
from taskplace.yamls import MOST, load

APP = "application: {id: a, class: 'x:Y'}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c: 1\na: &x\n  b: *x\n", ":2: found 'an alias inside its own anchor'"),
        ("a: &x [1, [*x]]\n", ":1: found 'an alias inside its own anchor'"),
        ("a: &x\n  b: 1\n  <<: *x\n", ":1: found 'an alias inside its own anchor'"),
        ("a: " + "[" * 600 + "]" * 600, "nested too deeply.*at most 100 levels"),
        ("a: " + "{b: " * 120 + "1" + "}" * 120, "nested too deeply"),
        ("a: 1\nb: {c: 1,\n  c: 2}\n", ":3: found \"the key 'c' given twice\""),
        ("a: {<<: {b: 1}, <<: {b: 2}}", "the key '<<' given twice"),
        ("a: 1\nb: no\n", ":2: found 'no', expected true or false, or a quoted string"),
        ("a: On\n", ":1: found 'On'"),
        ("a: 010\n", ":1: found '010', expected a number without a leading zero"),
        ("a: 10:00\n", ":1: found '10:00', expected a number without colons"),
        ("a: 1_2\n", ":1: found '1_2', expected a decimal number without underscores, or a quoted string"),
        ("a: 0x10\n", ":1: found '0x10', expected a decimal number"),
        ("a: -0b11\n", ":1: found '-0b11', expected a decimal number"),
        ("a: [1.5, 1_0.5]\n", ":1: found '1_0.5', expected a decimal number"),
        ("a: !!float 1_0\n", ":1: found '1_0', expected a decimal number"),
        ("a: 1:30.5\n", ":1: found '1:30.5'"),
        ("a: " + "9" * 6000, "a number of 6000 digits"),
        ("a: !!int abc\n", ":1: found \"!!int 'abc'\", expected a value that fits !!int, or no tag"),
        ("a:\n\tb: 1\n", ":2: a line begins with a tab; YAML needs spaces"),
        ("a: \x00", "expected YAML"),
        ("a: 1\n---\nb: 2\n", ":2: .*expected YAML"),
        ("? [1, 2]\n: 3\n", ":1: .*unhashable"),
        ("a: !!python/object:os.system {}\n", ":1: .*expected YAML"),
    ],
)  # fmt: skip
def test_a_document_that_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=rf"^app\.yaml.*{message}") as caught:
        load(text, "app.yaml")
    assert len(str(caught.value)) < 500
    path = tmp_path / "app.yaml"
    path.write_text(text)
    with pytest.raises(InputError):
        Settings.load(path)


def test_aliases_that_grow_without_end_are_refused_before_they_are_followed():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    with pytest.raises(
        InputError,
        match=rf":\d+: found '\d+ values, with every alias followed', expected at most {MOST} values",
    ):
        load("\n".join(lines), "app.yaml")


@pytest.mark.parametrize(
    "value",
    [
        *("!!timestamp x", "!!timestamp 2026-01-01", "!!timestamp {a: 1}", "!!binary aGk=", "!!binary '%%%'"),
        *("!!set {x, y}", "!!set [1]", "!!omap 5", "!!omap [a: 1]", "!!pairs [1]", "!!str [1]", "!!map [1]"),
        *("!!seq {a: 1}", "!!int [1]", "!!int ''", "!!int '-'", "!!int '1:'", "!!int 0x", "!!int '010'"),
        *("!!int 1.5", "!!float ''", "!!float '-'", "!!float ':'", "!!float x", "!!bool maybe", "!!bool 'yes'"),
        *("!!null x", "!!merge x", "!!python/tuple [1]", "!!python/name:os.system ''", "!foo x", "!<x> y"),
        *("0x_", "!!float 0x10_", "!!unknown 1"),
    ],
)  # fmt: skip
def test_a_tag_that_does_not_say_what_its_value_is_is_refused(value):
    for text in (f"b: 1\na: {value}\n", f"b: 1\n? {value}\n: 1\n", f"- 1\n- [{value}]\n"):
        with pytest.raises(InputError, match=r"^app\.yaml:2: found .*, expected ") as caught:
            load(text, "app.yaml")
        assert len(str(caught.value)) < 200


TAGS = [
    "int",
    "float",
    "bool",
    "null",
    "str",
    "seq",
    "map",
    "set",
    "omap",
    "pairs",
    "binary",
    "timestamp",
    "merge",
]
TAGGED = st.sampled_from(
    ["", "! ", "!x ", "!<tag:x> ", "!!python/object:x.Y ", *(f"!!{tag} " for tag in TAGS)]
)
WORDS = st.sampled_from(
    [
        "",
        "''",
        "-",
        "+",
        "0x",
        "1",
        "1.5",
        "'1'",
        ".",
        "1e",
        ".inf",
        "-.nan",
        "~",
        "no",
        "true",
        "<<",
        "=",
        "1:2",
        "_",
    ]
) | st.text("01.:_-+exbn'\"%é", max_size=5)
FRAGMENTS = st.recursive(
    st.tuples(TAGGED, WORDS).map("".join),
    lambda inner: (
        st.tuples(TAGGED, st.lists(inner, max_size=3)).map(lambda found: f"{found[0]}[{', '.join(found[1])}]")
        | st.tuples(TAGGED, st.lists(st.tuples(inner, inner), max_size=2)).map(
            lambda found: found[0] + "{" + ", ".join(f"? {k} : {v}" for k, v in found[1]) + "}"
        )
    ),
    max_leaves=5,
)


@settings(print_blob=True, deadline=None, max_examples=300)
@given(FRAGMENTS)
def test_whatever_is_tagged_is_plain_data_or_refused_with_its_line(fragment):
    try:
        found = load(f"a: 1\nb: {fragment}\n", "app.yaml")
    except InputError as error:
        assert error.path.startswith("app.yaml:")
        return
    _assert_plain(found)


def _assert_plain(value):
    assert value is None or type(value) in (str, int, float, bool, list, dict)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    for part in value if isinstance(value, list) else ():
        _assert_plain(part)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on: 1", {"on": 1}),
        ("{yes: 1, No: 2}", {"yes": 1, "No": 2}),
        ("by: {on: string}", {"by": {"on": "string"}}),
        ("since: 2024-01-01", {"since": "2024-01-01"}),
        ("since: 2024-13-45", {"since": "2024-13-45"}),
        ("[true, False, 'no', \"on\"]", [True, False, "no", "on"]),
        ("[0, 30000, '0x1F', '1_2', '010', -5, 1.5]", [0, 30_000, "0x1F", "1_2", "010", -5, 1.5]),
        ("{a: &x {b: 1}, c: {<<: *x, b: 2}}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("[&x [1], *x, *x]", [[1], [1], [1]]),
        (
            "[!!str 5, !!str no, !!int '5', !!float 5, !!bool 'true', !!null '', !!seq [], !!map {}]",
            ["5", "no", 5, 5.0, True, None, [], {}],
        ),
        ("", None),
    ],
)
def test_what_is_meant_is_read(text, value):
    assert load(text, "app.yaml") == value


def test_overrides_are_read_as_strictly():
    settings = Settings.from_mapping(
        {"application": {"id": "a", "class": "x:Y"}}, ["spark.conf.x=2024-01-01"]
    )
    assert settings.spark.conf == {"x": "2024-01-01"}
    for text, message in (
        ("spark.conf.x=no", "^spark.conf.x: found 'no', expected true or false"),
        ("input.x=[1", "YAML"),
    ):
        with pytest.raises(ConfigError, match=message):
            Settings.from_mapping({"application": {"id": "a", "class": "x:Y"}}, [text])


@pytest.mark.parametrize("document", [None, 3, "a", [], ["application"]])
def test_settings_that_are_no_mapping(document):
    with pytest.raises(ConfigError, match=r"^settings: found"):
        Settings.from_mapping(document)


ENVIRONMENT = {"OUT": "/data", "N": "3", "EMPTY": "", "LIST": "[1, 2]", "REFERS": "${OUT}"}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("dir: ${OUT}/x-${N}", {"dir": "/data/x-3"}),
        ("n: ${N}", {"n": 3}),
        ("n: '${N}'", {"n": "3"}),
        ("n: ${NO:-0.5}", {"n": 0.5}),
        ("n: ${EMPTY:-5}", {"n": 5}),
        ("n: '${EMPTY:-}'", {"n": ""}),
        ("n: $${OUT} and $OUT", {"n": "${OUT} and $OUT"}),
        ("n: [a, '${LIST}']", {"n": ["a", "[1, 2]"]}),
        ("n: ${REFERS}", {"n": "${OUT}"}),
        ("a: {b: &x '${N}'}\nc: *x", {"a": {"b": "3"}, "c": "3"}),
        ("'${OUT}': 1", {"${OUT}": 1}),
        (
            "spark:\n  conf:\n    a: ${OUT}\n    b: ${env:X}",
            {"spark": {"conf": {"a": "${OUT}", "b": "${env:X}"}}},
        ),
        ("spark: {conf.a: '${OUT}', master: '${OUT}'}", {"spark": {"conf.a": "${OUT}", "master": "/data"}}),
    ],
)
def test_variables_of_the_environment_are_put_in(text, read):
    assert load(text, "app.yaml", environment=ENVIRONMENT) == read
    assert "OUT" not in text or "/data" not in repr(load(text, "app.yaml"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "checkpoint:\n  dir: ${NO}/a",
            "app.yaml:2: checkpoint.dir: the environment variable NO is not set;",
        ),
        ("n: ${EMPTY}", "app.yaml:1: n: the environment variable EMPTY is empty"),
        (
            "a: {options: {password: '${NO}'}}",
            "app.yaml:1: a.options.password: the environment variable NO is not set",
        ),
        *(
            (f"n: '{each}'", "app.yaml:1: n: found `${`, expected ")
            for each in ("${a.b}", "${N:?", "${", "${NO:-${N}}")
        ),
        (
            "x: {dir: ${OUT}}",
            'but got \'{\'", expected YAML; inside braces and brackets, quote it: "${NAME}"',
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(text, says):
    with pytest.raises(InputError) as refused:
        load(text, "app.yaml", environment=ENVIRONMENT)
    assert says in str(refused.value)


@given(st.text(min_size=1))
def test_what_is_put_in_is_one_value(value):
    read = (
        load('a: "${V}"\nb: ${V:-x}\nc: 1', "app.yaml", environment={"V": value}) if is_text(value) else None
    )
    assert read is None or (read["a"], read["c"], len(read)) == (value, 1, 3)


def is_text(value: str) -> bool:
    """Whether YAML reads a value, where it is not in quotes, without an error."""
    try:
        load("b: ${V}", "app.yaml", environment={"V": value})
    except InputError:
        return False
    return True


@pytest.mark.timeout(120)
def test_a_list_of_megabytes_is_refused_before_it_is_read_to_its_end():
    with pytest.raises(InputError, match=f"found 'more than {MOST} values', expected at most {MOST} values"):
        load(f"a: [{'x, ' * 2_000_000}]", "app.yaml")


def test_an_application_is_read_with_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path))
    path = tmp_path / "app.yaml"
    path.write_text(f"{APP}checkpoint:\n  dir: ${{OUT}}/a\n")
    assert Settings.load(path).checkpoint_dir == f"{tmp_path}/a"
    assert Settings.load(path, ["state.dir=${OUT}/b"]).state_dir == tmp_path / "b"
    monkeypatch.delenv("OUT")
    with pytest.raises(
        InputError, match=r"app\.yaml:3: checkpoint\.dir: the environment variable OUT is not set"
    ):
        Settings.load(path)
