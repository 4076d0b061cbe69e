"""A configuration key is complete: it has a type and a meaning, and some module reads it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from taskplace.errors import ConfigError
from taskplace.model.keys import Configuration, Key

#: Values of the keys that are required.
EXAMPLES = {"id": "x", "class": "a:B", "batch": 1, "kill": "0"}
ROOT = Path(__file__).parents[1]


def keys() -> list[tuple[str, Key]]:
    """Every key of the page on configuration, with its class."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import configuration
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    sections: list[type[Configuration]] = [
        *configuration.SECTIONS.values(),
        *(kind for _, kind in configuration.OTHERS),
    ]
    return [(kind.__name__, key) for kind in sections for key in kind.declared_keys()]


def read() -> set[str]:
    """The names of all attributes that a module of taskplace reads."""
    return {
        node.attr
        for path in (ROOT / "taskplace").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_each_key_is_read_by_a_module():
    used = read()
    unread = [f"{kind}.{key.field}" for kind, key in keys() if key.field not in used]
    assert unread == [], "no module reads these keys"


@pytest.mark.parametrize(("kind", "key"), [pytest.param(*k, id=f"{k[0]}.{k[1].field}") for k in keys()])
def test_each_key_says_what_it_takes_and_what_it_means(kind, key):
    assert key.values, f"{kind}.{key.field}: its type has no text"
    assert key.doc, f"{kind}.{key.field} has no meaning"


@pytest.mark.parametrize(("kind", "key"), [pytest.param(*k, id=f"{k[0]}.{k[1].field}") for k in keys()])
def test_null_is_accepted_where_it_is_the_default(kind, key):
    part = next(each for each in Configuration.__subclasses__() if each.__name__ == kind)
    required = {each.name: EXAMPLES[each.name] for each in part.declared_keys() if each.required}
    if key.default is None:
        made = part.from_properties({**required, key.name: None})
        assert made == part.from_properties(required)
    elif key.default not in ("", (), {}) and key.name != "compression":  # whose null means: no compression
        with pytest.raises(ConfigError, match=f"{key.name}: found nothing"):
            part.from_properties({**required, key.name: None})
