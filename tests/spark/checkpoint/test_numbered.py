"""Only the names that numbers get are numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taskplace.spark.checkpoint.manifests import number_of, numbered


@given(st.integers(0, 2**62), st.sampled_from(["", ".json"]), st.integers(1, 12))
def test_a_number_is_found_in_its_name(number, suffix, digits):
    assert number_of(f"{number:0{digits}d}{suffix}", suffix, digits) == number


@given(st.text(alphabet="0123456789²٣+-. _j", max_size=30), st.integers(1, 12))
def test_no_other_name_is_a_number(name, digits):
    number = number_of(name, digits=digits)
    assert number is None or f"{number:0{digits}d}" == name


def test_a_folder_is_listed_in_the_order_of_its_numbers(tmp_path):
    for name in ("0010.json", "0009.json", "9.json", "0011", "²000.json", "x.json"):
        (tmp_path / name).touch()
    assert numbered(tmp_path, ".json", 4) == [9, 10]
    assert numbered(tmp_path / "none") == numbered(tmp_path / "0011") == []
