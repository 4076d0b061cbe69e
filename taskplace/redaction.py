"""Keeps secrets in options out of errors, logs and representations.

**Idea.** An error shows the value that it found, and in the options of a Kafka source that may be a password. The name
of an option identifies a secret: `kafka.ssl.key.password`, `fs.s3a.secret.key`, all of `kafka.sasl.*`. In a text, a
secret is found by its form: `SHAPES` has them all.

Properties: below `input`, `options` and `conf`, where names are those of Spark and Kafka, it hides rather too much than
too little. Elsewhere it hides only values with an unmistakable name, because `key` is also a word of topologies.
Non-goals: secrets whose names do not show it; Spark's own log (see `spark.redaction.regex`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

if sys.version_info < (3, 11):
    import regex
else:
    regex = re

HIDDEN = "(hidden)"
_LONG = ("password", "passwd", "passphrase", "secret", "jaas", "credential", "apikey")
#: Too short to be a secret's name inside another word: `passes`, `tokenizer`.
_SHORT = ("pass", "pw", "pwd", "token")
_PLAIN = (*_LONG, *_SHORT)
_AMONG_OPTIONS = (*_PLAIN, "key", "keys", "sasl", "auth", "signature", "sas")
_OPTIONS = ("options", "option", "conf")
#: The fields of `kafka` in `input` and `output` that are about the keys of records; `include` names columns.
_OF_KEYS = ("key", "key_format", "key_schema", "include")
_TOKENS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_INSIDE = (
    rf"{'|'.join(_LONG)}|pwd|token|azure\.sas\b|sasl\.|user\.info\b|"
    r"(?:access|account|api|encryption|keystore|private|secret)[._\-]?key"
)
#: `DB_PASS`, `db.pw` and `dbPass`, but not `passes` and `bypass`.
_WHOLE = r"(?<![a-z0-9])(?:pass|pw)(?![a-z0-9])|(?-i:(?<=[a-z0-9])P(?:ass|w)(?![a-z0-9]))"
#: A whole word that is the name of a secret; and the beginning of one that is an option of a command line.
_WORD = rf"(?<![\w.\-])(?=[\w.\-]*?(?:{_INSIDE}|{_WHOLE}))[\w.\-]++"
_OPTION = rf"(?<![\w.\-])(?=-[\w.\-]*?(?:{_INSIDE}|{_WHOLE}))[\w.\-]++"
#: A quote, also one that is escaped inside another text.
_QUOTE = r"""\\*+["']"""
#: A value: in quotes, which may be cut off, in brackets, or up to what separates it from what follows.
_VALUE = (
    r""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|\\++["'][^"']*+["']?|\[[^\]]*+\]?|"""
    r"""(?:[^\s"',;&)}\]]|["',;&)}\]](?![\s"',;&)}\]]|[\w.\-]*+["']?\s*+[=:]|\Z))++"""
)
#: The forms in which secrets stand in a text, in the order in which they are looked for. What follows a form's first
#: group is hidden. Each begins at the beginning of a word, and never gives back what it took: linear in the length.
SHAPES: Mapping[str, re.Pattern[str]] = {
    name: regex.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "private key": r"(-----BEGIN (?:\w+ ){0,3}PRIVATE KEY(?: BLOCK)?-----)(?s:.)*?(?=-----END|\Z)",
        "URI": r"""((?<!\w)\w++://[^/\s:@"']*+:)[^\s"'<>]++""",
        "header": (
            rf"(\b(?:authorization|cookie)(?:{_QUOTE})?\s*+[=:]\s*+)"
            rf"""(?:"[^"]*+|'[^']*+|{_QUOTE}[^"'\\]*+|[^\r\n]++)"""
        ),
        "credentials": r"(\bbearer\s++|\bbasic\s++(?=\S*?(?-i:[a-z][A-Z]|\d|=)))[^&\s'\"]++",
        "signature": r"([?&](?:sig|signature|key|x-amz-[\w\-]++)=)[^&\s'\"]++",
        "element": rf"(<(?:name>\s*+)?{_WORD}(?:\s*+</name>\s*+<value)?>)[^<]++",
        "pair": rf"(\({_QUOTE}{_WORD}{_QUOTE}\s*+,\s*+)(?:{_VALUE})(?=\))",
        "option": rf"({_OPTION}\s++)(?!-)(?:{_VALUE})",
        "name and value": rf"({_WORD}(?:{_QUOTE})?\s*+[=:]{{1,2}}>?\s*+)(?!found\b)(?:{_VALUE})",
        "token": r"(?<![\w\-])()(?-i:(?:AKIA|ASIA)[A-Z0-9]{16}\b|eyJ[\w\-]{8,}\.[\w\-.]++|(?:gh.|github_pat)_\w{20,})",
    }.items()
}


def is_secret(path: str) -> bool:
    """Return whether the name of an option, or a configuration path that ends in it, is that of a secret.

    >>> [is_secret(name) for name in ("input.a.options.kafka.ssl.key.password", "spark.conf.fs.s3a.access.key")]
    [True, True]
    >>> [is_secret(name) for name in ("topology.sources.a.key", "input.a.options.subscribe", "options.kafka.sasl.x")]
    [False, False, True]
    >>> [is_secret(name) for name in ("spark.conf.spark.executorEnv.DB_PASS", "input.a.options.passes")]
    [True, False]
    >>> [is_secret(f"output.a.kafka.{name}") for name in ("key", "sasl.password", "options.sasl.username")]
    [False, True, True]
    >>> [is_secret(f"input.a.kafka.{name}") for name in ("key.kind", "include.key", "ssl.key.pem", "options.ssl.key")]
    [False, False, True, True]
    """
    parts = path.split(".")
    at = next((i for i, part in enumerate(parts) if part in _OPTIONS or part.endswith(": spark")), None)
    if parts[0] == "spark":  # also a property without `spark.conf`, as Spark names it
        at = at or 0
    if at is not None:
        return _has(parts[at + 1 :], _AMONG_OPTIONS)
    if {"schema", "topology"} & set(parts):  # the value of a column named `password` is a type
        return False
    of_keys = (
        parts[0] in ("input", "output") and parts[2:3] == ["kafka"] and parts[3:4] and parts[3] in _OF_KEYS
    )
    if of_keys and "registry" not in parts:
        return _has(parts[4:], _PLAIN)
    of_source = parts[0] in (
        "input",
        "output",
    )  # an option that was written outside of `options` by mistake
    return _has(parts[2:], _AMONG_OPTIONS) if of_source else _has(parts, _PLAIN)


def may_be_secret(name: str) -> bool:
    """Return whether a name is that of a secret in some section: for a value whose section is not known.

    >>> may_be_secret("kafka.ssl.key.password"), may_be_secret("key"), may_be_secret("path")
    (True, True, False)
    """
    return _has([name], _AMONG_OPTIONS)


def _has(parts: list[str], words: tuple[str, ...]) -> bool:
    tokens = [token.lower() for part in parts for token in _TOKENS.findall(part)]
    return any(token in words or token.rstrip("s") in words for token in tokens) or any(
        word in part.lower() for part in parts for word in _LONG
    )


def redacted(value: Any, path: str = "") -> Any:
    """Return a value without its secrets, for display; `path` is its place in the configuration.

    >>> redacted({"format": "kafka", "options": {"kafka.sasl.jaas.config": "x", "subscribe": "a"}}, "input.a")
    {'format': 'kafka', 'options': {'kafka.sasl.jaas.config': '(hidden)', 'subscribe': 'a'}}
    """
    if value is None or isinstance(value, bool):
        return value
    if path and is_secret(path):
        return HIDDEN
    if isinstance(value, Mapping):
        return {name: redacted(inner, f"{path}.{name}") for name, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(redacted(inner, path) for inner in value)
    return scrubbed(value) if type(value) is str else value


def scrubbed(text: str) -> str:
    """Return a text with its secrets hidden.

    >>> scrubbed('LoginModule required username="u" password="p\\\\"q";')
    'LoginModule required username="u" password=(hidden);'
    >>> scrubbed("jdbc://user:pass@host/db?token=abc&x=1")
    'jdbc://user:(hidden)@host/db?token=(hidden)&x=1'
    >>> scrubbed("wasbs://c@acc/x?sv=1&sig=abc"), scrubbed("Authorization: Bearer ey.J0")
    ('wasbs://c@acc/x?sv=1&sig=(hidden)', 'Authorization: (hidden)')
    """
    for shape in SHAPES.values():
        text = shape.sub(_hidden, text)
    return text


def _hidden(found: re.Match[str]) -> str:
    if found.re is not SHAPES["URI"]:
        return f"{found[1]}{HIDDEN}"
    _, at, host = found[0].rpartition("@")  # a password may have / and @
    return f"{found[1]}{HIDDEN}@{host}" if at else found[0]
