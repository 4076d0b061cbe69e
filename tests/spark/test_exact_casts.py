"""Every pair of types that `cast` converts, against exact arithmetic in plain Python: equal, or refused.

A model says what each value is in the other type: a Python value, or REFUSED. Values lie at and around the limits of
all types, and are drawn, from a seed that a failure shows.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from taskplace.errors import InputError
from taskplace.spark.casts import cast
from taskplace.spark.types import check_cast
from tests.support.exact_values import KINDS, REFUSED, exact, raws, samples

T = pa.types


def converted(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the project casts one type to the other. Arrow has no casts of half floats and booleans, ..."""
    try:
        check_cast(given, kind, "")
        cast(pa.nulls(1, given), kind)
    except (InputError, pa.ArrowNotImplementedError):
        return False
    return True


PAIRS = [(given, kind) for given in KINDS for kind in KINDS if given != kind and converted(given, kind)]


def compare(given: pa.DataType, kind: pa.DataType, column: pa.Array) -> str:
    """Return what is wrong; nothing if all is right. All values that the type holds are cast at once, others alone."""
    wanted = [exact(value, given, kind) for value in raws(column)]
    fits = [
        at
        for at, value in enumerate(wanted)
        if value is not REFUSED and not (callable(value) and not text_of(given, column, at))
    ]
    try:
        made = raws(cast(column.take(pa.array(fits, pa.int64())), kind))
    except pa.ArrowException as error:
        return f"refused: {error}"
    for at, value in zip(fits, made, strict=True):
        want = wanted[at]
        if not (want(value) if callable(want) else want == value or (want != want and value != value)):
            return f"{column[at : at + 1]} became {value}, not {want}"
    for at in sorted({*range(len(column))} - {*fits}):
        try:
            return f"{column[at : at + 1]} became {cast(column[at : at + 1], kind)}"
        except pa.ArrowException:
            continue
    return ""


def text_of(given: pa.DataType, column: pa.Array, at: int) -> bool:
    """Return whether Arrow has a text for a value: of times of a few 10,000 years it has."""
    if not T.is_temporal(given):
        return True
    plain = (
        column[at : at + 1].cast(pa.timestamp(given.unit)) if T.is_timestamp(given) else column[at : at + 1]
    )
    return not plain.cast(pa.string())[0].as_py().startswith("<")


def test_every_pair_of_types_is_exact():
    run(seed=random.randrange(10**9), count=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_every_pair_of_types_is_exact_at_length(seed):
    run(seed=seed, count=4_000)


def run(seed: int, count: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    columns = {kind: samples(kind, draw, count) for kind in KINDS}
    assert len(PAIRS) > 400
    wrong = {f"{given} to {kind}": compare(given, kind, columns[given]) for given, kind in PAIRS}
    assert not {pair: why for pair, why in wrong.items() if why}, f"seed {seed}"
