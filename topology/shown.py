"""Shows a value in an error, in the notation of the file that it comes from.

**Idea.** The values that errors quote come from YAML or JSON. So lists, mappings, truth values and null are shown in
YAML's flow style, and not as Python prints them. Texts have quotes, so that an empty one, and blanks at an end, are
seen. What is missing, at the top, is `nothing`.

Properties: one line; at most `SHOWN` letters, also of values that cannot be printed. Values of other types are shown as
Python does. Secrets are not hidden here: see `taskplace.redaction`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The most letters of a value that an error shows.
SHOWN = 1000
#: Keys that need no quotes: YAML reads them as texts.
_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z_][\w.\-]*", re.ASCII | re.IGNORECASE)


def shown(value: object) -> str:
    """Return a value as text for an error.

    >>> shown(None), shown(True), shown("a b"), shown({"a": None, "b": ["x", 1, False], 2: {}})
    ('nothing', 'true', "'a b'", "{a: null, b: ['x', 1, false], 2: {}}")
    >>> shown(10**400)
    'a number of 1329 bits'
    """
    if value is None:
        return "nothing"
    try:
        text = _flow(value)
    except Exception:  # a value whose own repr fails, or that contains itself
        text = f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} letters)"


def _flow(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 1024:  # Python refuses to print very long integers
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)}: {_flow(inner)}' for key, inner in value.items())}}}"
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_flow, value))}]"  # type: ignore[call-overload]
    return repr(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) and _PLAIN.fullmatch(key) else _flow(key)
