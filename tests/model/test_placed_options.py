"""The options of `Placed` in a configuration: how each is read, and what is refused."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from taskplace.errors import ConfigError
from taskplace.model.placed_options import PlacedKeywords, PlacedOptions


def test_type_checkers_know_each_option_as_a_keyword_of_the_same_type():
    types = get_type_hints(PlacedOptions)
    fields = {key.field: types[key.field] for key in PlacedOptions.declared_keys()}
    assert get_type_hints(PlacedKeywords) == fields


def test_tags_of_hosts_are_names_and_values_as_text():
    tags = {"host-1": {"zone": "a"}, "host-2": {}}
    assert PlacedOptions(tags=tags).tags == tags


@pytest.mark.parametrize("tag", [{"zone": 3}, {4: "a"}])
def test_a_tag_that_is_no_text_is_refused_with_its_path(tag):
    with pytest.raises(
        ConfigError, match=rf"^runtime\.tags\.host-1\.{next(iter(tag))}: found .*, expected a string"
    ):
        PlacedOptions(tags={"host-1": tag})
