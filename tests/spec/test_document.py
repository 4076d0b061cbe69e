"""YAML as plain values, with lines; variables of the environment; overrides."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskplace.errors import ConfigError, InputError
from taskplace.spec.application import Settings
from taskplace.spec.document import MOST, key_lines, load, nearest_file, with_value
from taskplace.spec.nodes import Output

APP = "application: {id: a, class: 'x:Y'}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 600 + "]" * 600, ""),
        ("a: " + "{b: " * 120 + "1" + "}" * 120, "at most 100000 values, 100 levels deep"),
        ("a: 1\nb: {c: 1,\n  c: 2}\n", ":3: found \"the key 'c' given twice\""),
        ("a: " + "9" * 6000, "expected YAML"),
        ("a: !!int abc\n", "expected YAML"),
        ("a:\n\tb: 1\n", ":2: "),
        ("a: \x00", "expected YAML"),
        ("a: 1\n---\nb: 2\n", ":2: .*expected YAML"),
        ("? [1, 2]\n: 3\n", ":1: .*expected a string as key"),
        ("a: !!python/object:os.system {}\n", ":1: found 'a tag, and values need none'"),
        ("a: 1\nb: !foo 1", ":2: found 'a tag, and values need none'"),
        ("a: 1\nb: !foo {}", ":2: found 'a tag, and values need none'"),
        ("a: [1, !!python/name:os.system '']", ":1: found 'a tag, and values need none'"),
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


def test_the_name_of_a_missing_file_is_no_pattern(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "ck1").touch()
    (tmp_path / "below" / "ck[1]").touch()
    assert nearest_file(tmp_path / "ck[1]", "*.no") == str(tmp_path / "below" / "ck[1]")
    assert nearest_file(tmp_path / "a**b", "*.no") == nearest_file(tmp_path / "ck?", "*.no") == ""


def test_a_secret_that_is_given_twice_is_not_shown():
    for text in ("password: one\npassword: two", "a:\n  ssl.key.password: one\n  ssl.key.password: two"):
        with pytest.raises(InputError, match="password' given twice") as caught:
            load(text, "app.yaml")
        assert "one" not in str(caught.value)
        assert "two" not in str(caught.value)


def test_aliases_that_grow_without_end_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    with pytest.raises(
        InputError, match=rf"found 'too many values, or too deep ones', expected at most {MOST} values"
    ):
        load("\n".join(lines), "app.yaml")


TAGS = [
    "int", "float", "bool", "null", "str", "seq", "map", "set", "omap", "pairs", "binary", "timestamp",
    "merge",
]  # fmt: skip
TAGGED = st.sampled_from(
    ["", "! ", "!x ", "!<tag:x> ", "!!python/object:x.Y ", *(f"!!{tag} " for tag in TAGS)]
)
WORDS = st.sampled_from(
    [
        "", "''", "-", "+", "0x", "1", "1.5", "'1'", ".", "1e", ".inf", "-.nan", "~", "no", "true", "<<",
        "=", "1:2", "_",
    ]
) | st.text("01.:_-+exbn'\"%é", max_size=5)  # fmt: skip
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
        assert error.path.startswith("app.yaml")
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
        ("[yes, No, on, OFF, 10:00]", ["yes", "No", "on", "OFF", "10:00"]),
        ("{a: &x {b: 1}, c: {<<: *x, b: 2}}", {"a": {"b": 1}, "c": {"b": 2}}),
        ("[&x [1], *x, *x]", [[1], [1], [1]]),
        ("[!!str 5, !!int '5', !!bool 'true']", ["5", 5, True]),
        ("", None),
    ],
)
def test_what_is_meant_is_read(text, value):
    assert load(text, "app.yaml") == value


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


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: 1\nb:\n  c: 2\n", {("a",): 1, ("b",): 2, ("b", "c"): 3}),
        ("b: &x\n  c: 2\nd:\n  <<: *x\n  e: 1\n", {("b",): 1, ("b", "c"): 2, ("d",): 3, ("d", "e"): 5}),
        ("a:\n- x\n- {y: 1}\n", {("a",): 1, ("a", "[0]"): 2, ("a", "[1]"): 3, ("a", "[1]", "y"): 3}),
        ("", {}),
    ],
)
def test_each_key_has_its_line(text, lines):
    assert key_lines(text) == lines


@pytest.mark.parametrize(
    ("tree", "path", "made"),
    [
        ({}, "a.path", {"a": {"path": 1}}),
        ({}, "a.b.path", {"a.b": {"path": 1}}),
        ({"a": None}, "a.path", {"a": {"path": 1}}),
        ({"a.b": {}}, "a.b.pth", {"a.b": {"pth": 1}}),
        ({"a": {"path": "/x"}}, "a.b.path", {"a": {"path": "/x", "b.path": 1}}),
        ({}, "a.kafka.options.linger.ms", {"a": {"kafka": {"options": {"linger.ms": 1}}}}),
        ({"a": {"kafka": {"topic": "t"}}}, "a.kafka.topic", {"a": {"kafka": {"topic": 1}}}),
        ({"typo": 3}, "typo", {"typo": 1}),
    ],
)
def test_where_an_override_leads(tree, path, made):
    assert with_value(tree, path, 1, dict[str, Output]) == made
