"""What is secret among options, and how it is kept out of errors, logs and representations.

**Idea.** An error echoes what it found; of a Kafka source, that may be a password. What an option holds is told by its
name: `kafka.ssl.key.password`, `fs.s3a.secret.key`, all of `kafka.sasl.*`. In text it is told by `name=value`, as in a
JAAS configuration or in `--set`, and by what stands before the @ of a URI.

Properties: hides too much rather than too little below `input`, `options` and `conf`, where names are Spark's and
Kafka's own; elsewhere only what has an unmistakable name, since `key` is a word of topologies, too.
Non-goals: secrets whose names do not show it; what Spark itself writes to its log (see `spark.redaction.regex`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
_PLAIN = ("password", "passwd", "pwd", "passphrase", "secret", "token", "jaas", "credential", "apikey")
_AMONG_OPTIONS = (*_PLAIN, "key", "keys", "sasl", "auth", "signature", "sas")
_OPTIONS = ("options", "option", "conf")
_TOKENS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORD = rf"[\w.\-]*(?:{'|'.join(_PLAIN)}|(?:access|account|api|private|secret)[._\-]?key|sasl\.)[\w.\-]*"
_PAIR = re.compile(
    rf"""({_WORD}["']?\s*[=:]\s*)(?!found\b)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&)}}\]]+)""",
    re.IGNORECASE,
)
_IN_URI = re.compile(r"(\w+://[^/\s:@]*:)[^/\s@]+@")
#: Of a URI that is signed, and of a header.
_SIGNED = re.compile(r"([?&](?:sig|signature|x-amz-signature)=|\bBearer\s+)[^&\s'\"]+", re.IGNORECASE)


def is_secret(path: str) -> bool:
    """Return whether the name of an option, or a path in a configuration that ends in it, is that of a secret.

    >>> [is_secret(name) for name in ("input.a.options.kafka.ssl.key.password", "spark.conf.fs.s3a.access.key")]
    [True, True]
    >>> [is_secret(name) for name in ("topology.sources.a.key", "input.a.options.subscribe", "options.kafka.sasl.x")]
    [False, False, True]
    """
    parts = path.split(".")
    at = next((i for i, part in enumerate(parts) if part in _OPTIONS), None)
    if at is not None:
        return _has(parts[at + 1 :], _AMONG_OPTIONS)
    if {"schema", "topology"} & set(parts):  # what is said of a column called `password` is its type
        return False
    of_source = parts[0] in (
        "input",
        "output",
    )  # an option that was written beside the others, not among them
    return _has(parts[2:], _AMONG_OPTIONS) if of_source else _has(parts, _PLAIN)


def _has(parts: list[str], words: tuple[str, ...]) -> bool:
    found = [token.lower() for part in parts for token in _TOKENS.findall(part)]
    return any(token in words or token.rstrip("s") in words for token in found) or any(
        word in part.lower() for part in parts for word in _PLAIN if word not in ("token", "pwd")
    )


def redacted(value: Any, path: str = "") -> Any:
    """Return a value without its secrets, for showing; `path` says where it was found.

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
    """Return a text without the secrets that show in it.

    >>> scrubbed('LoginModule required username="u" password="p\\\\"q";')
    'LoginModule required username="u" password=(hidden);'
    >>> scrubbed("jdbc://user:pass@host/db?token=abc&x=1")
    'jdbc://user:(hidden)@host/db?token=(hidden)&x=1'
    >>> scrubbed("wasbs://c@acc/x?sv=1&sig=abc"), scrubbed("Authorization: Bearer ey.J0")
    ('wasbs://c@acc/x?sv=1&sig=(hidden)', 'Authorization: Bearer (hidden)')
    """
    for pattern, hidden in ((_IN_URI, f"{HIDDEN}@"), (_SIGNED, HIDDEN), (_PAIR, HIDDEN)):
        text = pattern.sub(rf"\1{hidden}", text)
    return text
