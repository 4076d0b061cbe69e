"""What differs between versions of PySpark; `scripts/test-versions.sh` runs this file with each of them."""

from __future__ import annotations

import importlib
import pkgutil

import pyarrow as pa
import pyspark
import pytest

import taskplace
from taskplace.spark import session_conf, versions
from taskplace.spark.worker.hashing import partition_of


def test_every_module_can_be_imported():
    for module in pkgutil.walk_packages(taskplace.__path__, "taskplace."):
        importlib.import_module(module.name)


def test_the_installed_version_is_supported():
    assert session_conf.supported(pyspark.__version__), pyspark.__version__


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12, 200, 1000])
def test_a_preimage_reaches_its_partition(count):
    found = partition_of([pa.array(versions.preimages(count), pa.int32())], count)
    assert found.tolist() == list(range(count))
