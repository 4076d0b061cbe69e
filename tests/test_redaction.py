"""Passwords and tokens of sources and of Spark are in no error, no output, no log and no representation."""

from __future__ import annotations

import re
import sys
from unittest.mock import Mock

import pytest
import yaml

pytest.importorskip("pyspark")

from taskplace.cli import main
from taskplace.errors import InputError, SinkError
from taskplace.redaction import HIDDEN, SHAPES, is_secret, redacted, scrubbed
from taskplace.spark.yaml_application import YamlApplication
from taskplace.spec.application import Settings
from taskplace.spec.document import load
from topology import TopologyError

SECRET = "hunter2"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'
OPTIONS = [
    "kafka.sasl.jaas.config", "kafka.sasl.oauthbearer.client.credentials.client.secret",
    "kafka.sasl.login.callback", "kafka.ssl.keystore.password", "kafka.ssl.key.password",
    "kafka.ssl.truststore.password", "kafka.ssl.keystore.key", "password", "dbPassword", "PASSWORD",
    "accessToken", "access_key", "fs.s3a.secret.key", "fs.azure.account.key.store.dfs.core.windows.net",
    "awsSecretAccessKey", "apiKey", "google.credentials", "sasToken", "pass", "DB_PASS", "dbPass", "db.pw",
    "db_passwd",
]  # fmt: skip


def document(option: str, value: object, **more: object) -> dict:
    return {
        "application": {"id": "orders"},
        "topology": {
            "sources": {"orders": {"key": "customer", "partitions": 4}},
            "nodes": {
                "once": {"process": "orders", "processor": "deduplicate", "options": {"by": {"customer": "string"}}},
                "totals": {"sink": "once"},
            },
        },
        "input": {
            "orders": {
                "format": "kafka",
                "options": {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", option: value},
            }
        },
        "output": {"totals": {"path": "out"}},
        **more,
    }  # fmt: skip


def told(function, *given) -> str:
    with pytest.raises((InputError, TopologyError)) as caught:
        function(*given)
    assert SECRET not in repr(caught.value)
    assert SECRET not in repr(vars(caught.value))
    return str(caught.value)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", [[SECRET], {"a": SECRET}], ids=["list", "mapping"])
def test_an_option_of_a_wrong_type_is_not_echoed(option, value):
    text = told(lambda: YamlApplication(Settings.from_mapping(document(option, value))))
    assert text.startswith(f"input.orders.options.{option}: found {HIDDEN!r}, expected a string")


@pytest.mark.parametrize("option", OPTIONS)
def test_settings_are_represented_without_secrets(option):
    more = {"spark": {"conf": {"spark.hadoop." + option: SECRET, "spark.ui.enabled": False}}}
    settings = Settings.from_mapping(document(option, SECRET, **more))
    for text in (repr(settings), str(settings), f"{settings}", repr(settings.spark)):
        assert SECRET not in text
        assert "spark.ui.enabled" in text
    assert settings.spark.conf["spark.hadoop." + option] == SECRET
    assert settings.input["orders"]["options"][option] == SECRET


@pytest.mark.parametrize(
    "override",
    [
        f"input.orders.options.kafka.sasl.jaas.config: {JAAS}",
        f"input.orders.options.kafka.ssl.key.password=[{SECRET}",
        f"input.orders.options.kafka.sasl.jaas.config={{{JAAS}",
        f"input={{orders: {{options: {{kafka.ssl.key.password: {SECRET}",
        f"spark.conf.spark.hadoop.fs.s3a.secret.key=[{SECRET}]", f"spark.conf={{password: {SECRET}}}=x",
        f"token={SECRET}", f"spark.conf.spark.executorEnv.DB_PASS=[{SECRET}]",
        f"input.orders.options.pass=[{SECRET}]", f"password {SECRET}",
        f"input.orders.options.kafka.ssl.key {SECRET}", f"dbPass:{SECRET}", f"{SECRET} password",
    ],
)  # fmt: skip
@pytest.mark.parametrize("check", [True, False])
def test_the_command_line_tells_no_secret(tmp_path, monkeypatch, capsys, override, check):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.yaml").write_text(yaml.safe_dump(document("kafka.sasl.jaas.config", JAAS)))
    arguments = ["run", "orders.yaml", "--set", override, *(["--check"] if check else [])]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    assert shown.err


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("topology.sources.orders.key", 3),
        ("input.orders.schema.password", "strng"),
        ("input.orders.options.maxFilesPerTrigger", [1]),
        ("placement.num.standby.replicas", "many"),
        ("process_batch", ["key", "value"]),
        ("stores.by-key.key", "float16"),
    ],
)
def test_what_is_no_secret_is_shown(path, value):
    assert not is_secret(path)
    assert redacted(value, path) == value
    assert f"{path}: found {value!r}, expected x" == str(InputError(path, found=value, expected="x"))


@pytest.mark.parametrize(
    "value",
    [
        *(
            f"!!int {SECRET}", f"!{SECRET} x", f"!!{SECRET} x", f"!!bool {SECRET}", f"*{SECRET}",
            f"!!float '{SECRET}'",
        ),
        *(
            f"[!!int {SECRET}]", f"{{x: !!int {SECRET}}}", f"!{SECRET}!x y", f"&{SECRET} *{SECRET}",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "document",
    [
        "input:\n  orders:\n    options:\n      kafka.ssl.key.password: {}\n",
        "input: {{orders: {{format: kafka, options: {{kafka.sasl.jaas.config: {}, b: 1}}}}}}\n",
        "spark:\n  conf:\n    fs.s3a.secret.key: {}\n",
    ],
)
def test_the_parser_of_yaml_tells_no_secret(document, value):
    with pytest.raises(InputError, match=r"^app\.yaml(:\d)?: found ") as caught:
        load(document.format(value), "app.yaml")
    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.found)


@pytest.mark.parametrize(
    "piece",
    [
        "a", "9", "-", ".", " ", "password", "pass", "aPw_", "password=", 'password="', "token='\\\"",
        "a://", "a://b:", "Bearer ", "sasl.", "-----BEGIN PRIVATE KEY-----", "Authorization: ", "basic ",
        "a?key=", "<password>", "('password', ", "--password ", "password=,", 'password\\"=', "eyJeyJeyJ-",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_the_time_for_a_text_grows_with_its_length_only(piece):
    assert SECRET not in scrubbed(f"{piece * 50_000} password={SECRET}")


#: By shape: the texts around a secret, which stay.
FORMS = {
    "private key": [
        ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY----- x"),
        ("pem: '-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----END ENCRYPTED PRIVATE KEY-----'"),
        ("-----BEGIN PRIVATE KEY-----", ""),
    ],
    "URI": [
        ("jdbc:postgresql://u:", "@host:5432/db"),
        ("redis://:", "@host/0, a: b"),
        ("s3a://AKID:", "@bucket/x 'a@b'"),
    ],
    "header": [
        ("Authorization: Basic ", ""),
        ("'Authorization': 'Bearer ", "'}"),
        ('{\\"Proxy-Authorization\\": \\"Token ', '\\", \\"a\\": 1}'),
        ("authorization=", "\nnext: line"),
        ("Set-Cookie: ", ""),
    ],
    "credentials": [("got Bearer ", " from"), ("curl Basic aB", " x")],
    "signature": [("https://host/x?sv=1&sig=", "&x=1"), ("?X-Amz-Security-Token=", ""), ("/maps?key=", "'")],
    "element": [
        ("<password>", "</password>"),
        ("<name>fs.s3a.secret.key</name>\n <value>", "</value>"),
    ],
    "pair": [("('spark.hadoop.fs.s3a.secret.key', ", "), ('a', 'b')")],
    "option": [("java -Ddb.pass ", " -cp x"), ("run --db-password ", ""), ("-Dfs.s3a.secret.key '", "' x")],
    "name and value": [
        ("-Ddb.pass=", " x"),
        ('{"password": "', '", "user": "u"}'),
        ('\\"clientSecret\\": \\"', '\\", \\"user\\": 1'),
        ("{'passwords': [", "], 'a': 1}"),
        ("AccountName=a;AccountKey=", ";EndpointSuffix=b"),
        ("fs.azure.account.key.a.dfs.core.windows.net=", ", x=1"),
        ("spark.executorEnv.AWS_SESSION_TOKEN: ", ""),
        ("basic.auth.user.info=", ", url=x"),
        ("password => ", ")"),
    ],
    "token": [],
}  # fmt: skip


def test_every_shape_has_forms():
    assert FORMS.keys() == SHAPES.keys()


@pytest.mark.parametrize(("before", "after"), [form for forms in FORMS.values() for form in forms])
@pytest.mark.parametrize("secret", [SECRET, "p/a+ss=", "p/a@ss:w"])
def test_a_secret_is_hidden_in_each_form_and_what_is_around_it_is_shown(before, after, secret):
    if before.endswith(("', ", "[")):  # where a literal stands
        secret = repr(secret)
    shown = scrubbed(f"it says {before}{secret}{after}")
    assert secret not in shown
    assert shown.startswith("it says " + re.split(r"[=:>( ]", before)[0])
    assert shown.endswith(after.lstrip("\"']\\"))
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "token",
    ["AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJI.eyJzdWIi.abc-d_e", "ghp_" + 36 * "a", "github_pat_" + 40 * "a"],
)
def test_a_token_that_shows_what_it_is_is_hidden(token):
    assert scrubbed(f"refused {token}, x") == f"refused {HIDDEN}, x"


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://namenode:8020/data/x, s3a://bucket/a and abfss://c@account.dfs.core.windows.net/x",
        "expected one of 'kafka.ssl.key.password', 'kafka.ssl.truststore.password'",
        "basic authentication failed; use --set to give a bearer",
        "Topic authorization failed. a: -b, keys: [x], key=customer",
        "-----BEGIN CERTIFICATE-----MIIB-----END CERTIFICATE-----",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_secret_is_shown(text):
    assert scrubbed(text) == text


def test_no_command_shows_a_secret_of_a_file(tmp_path, monkeypatch, capsys):
    conf = {
        "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": SECRET,
        "spark.hadoop.fs.s3a.access.key": SECRET,
        "spark.executorEnv.AWS_ACCESS_KEY_ID": SECRET,
        "spark.driver.extraJavaOptions": f"-Ddb.pass {SECRET} -Durl=jdbc://u:x/{SECRET}@h/db",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:mysql://u:x@{SECRET}@h/db",
    }
    given = document("kafka.sasl.jaas.config", JAAS, spark={"conf": conf})
    given["input"]["orders"]["select"] = ["1"]
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(given))
    (tmp_path / "spark.conf").write_text("".join(f"{name} {value}\n" for name, value in conf.items()))
    monkeypatch.chdir(tmp_path)
    more = ["--set", f"spark.conf.spark.hadoop.fs.s3a.access.key={SECRET}3"]
    for command in (["config", "--all"], ["doctor", "--spark-properties", "spark.conf"], ["run", "--check"]):
        for output in ("text", "json"):
            main([*command, str(file), "--output", output, *more])
            shown = capsys.readouterr()
            assert SECRET not in shown.out + shown.err
            assert shown.out
    assert main(["config", str(file), *more]) == 0
    assert capsys.readouterr().out.count(HIDDEN) == 8


def test_an_error_of_any_kind_is_printed_without_secrets(monkeypatch, capsys):
    said = f"broker: AccountKey={SECRET}"
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    for error in (TopologyError(said), SinkError(said), OSError(5, "x", f"/a/password={SECRET}")):
        monkeypatch.setattr("taskplace.cli.config.config", Mock(side_effect=error))
        assert main(["config", "x.yaml"]) in (1, 2)
        assert SECRET not in capsys.readouterr().err
    sys.excepthook(KeyError, KeyError(said), None)  # whatever a program of one's own raises
    assert capsys.readouterr().err == f"KeyError: 'broker: AccountKey={HIDDEN}'\n"
