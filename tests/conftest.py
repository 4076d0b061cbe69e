"""One real local-cluster for all tests that need Spark, one broker for all that need Kafka; no clock judges an
example of hypothesis.

`make test` leaves out what is marked `slow` or `long`. A test that asks for the session, or for a fixture made of it,
needs Spark. What needs Spark is long unless it is marked `everyday`.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from pathlib import Path

import psutil
import pytest
from _pytest.unittest import TestCaseFunction
from hypothesis import HealthCheck, is_hypothesis_test, settings

pytest.register_assert_rewrite("tests.support")

EXECUTORS = 3
#: How many workers of xdist may have a cluster. With one, a worker runs all tests with Spark, beside the others' tests.
CLUSTERS = int(os.environ.get("TASKPLACE_TEST_CLUSTERS", "1"))
SLOW_SECONDS = 3600  # of a `slow` test without a timeout of its own

settings.register_profile(
    "thorough",
    settings.default,
    deadline=None,
    print_blob=True,  # what fails says how to make it fail again
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", settings.get_profile("thorough"))  # see `draw_less`
settings.load_profile("thorough")


def draw_less(items: list[pytest.Item]) -> None:
    """Have tests draw a third of the examples that they ask for, but 10 at least."""

    def less(asked: settings) -> settings:
        return settings(asked, max_examples=max(asked.max_examples // 3, min(asked.max_examples, 10)))

    functions = [
        item for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.function)
    ]
    machines = {item.cls: item.cls.settings for item in functions if isinstance(item, TestCaseFunction)}
    for machine, asked in machines.items():  # also one that has another's
        machine.settings = less(asked)
    for test in {item.function for item in functions if not isinstance(item, TestCaseFunction)}:
        test._hypothesis_internal_use_settings = less(test._hypothesis_internal_use_settings)


def allow_hours(items: list[pytest.Item]) -> None:
    """Give `slow` tests a longer timeout than the everyday one, which a long form exceeds on a busy machine."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


class PlainNames:
    """Reports name tests as pytest takes them, without the group that xdist puts behind their names."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        report.nodeid = re.sub(r"@[\w-]+$", "", report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's workers need the whole name
        config.pluginmanager.register(PlainNames())


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and what of that is for longer runs; one worker gets all of it, and begins with it.

    Slow tests get the time that they need.
    """
    for item in items:
        if " at 0x" in item.nodeid:  # the workers of xdist could not agree on the names
            raise pytest.UsageError(f"{item.nodeid}: a test's name has an address; give its parameters ids")
        for fixture in {"spark", "kafka"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(fixture)
        if item.get_closest_marker("spark"):
            if CLUSTERS == 1:
                item.add_marker(pytest.mark.xdist_group("spark"))
            if not item.get_closest_marker("everyday"):
                item.add_marker("long")
        elif "browser" in getattr(
            item, "fixturenames", ()
        ):  # one worker has it, unless it needs Spark as well
            item.add_marker(pytest.mark.xdist_group("browser"))
    allow_hours(items)
    if settings.get_current_profile_name() == "quick":
        draw_less(items)
    if hasattr(config, "workerinput"):  # the others have enough to do meanwhile
        items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium (`scripts/chromium.sh`)."""
    from tests.support.browser import chromium

    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="session")
def fault_orders(tmp_path_factory):
    """The directory in which executors look for orders (`taskplace.spark.faults`)."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def only_cluster(tmp_path_factory):
    """Fail if more workers of xdist run tests with Spark than `CLUSTERS` allows."""
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) is None:
        return
    with (tmp_path_factory.getbasetemp().parent / "worker-with-spark").open("a+") as file:
        file.write(f"{worker}\n")
        file.flush()
        file.seek(0)
        workers = file.read().split()
    if len(set(workers)) > CLUSTERS:
        pytest.fail(f"tests with Spark run in {workers}: this pytest-xdist does not keep groups together")


@pytest.fixture(scope="session")
def spark(only_cluster, fault_orders):
    from pyspark.sql import SparkSession

    from tests.support.executors import executor_processes
    from tests.support.placed_harness import SHORT_LIVED

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local-cluster[{EXECUTORS},2,1024]").appName("taskplace-tests")
    for key, value in {
        "spark.executor.memory": "900m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.decommission.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.TASKPLACE_FAULTS": str(fault_orders),
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[1]),
        **SHORT_LIVED,
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    executors = list(executor_processes().values())
    session.stop()
    _, left = psutil.wait_procs(executors, timeout=5)
    for process in left:  # did not hear of it
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """The broker that all workers share (`tests.support.kafka_broker.SharedBroker`)."""
    from tests.support.kafka_broker import shared_broker

    own = tmp_path_factory.getbasetemp()
    with shared_broker(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as broker:
        yield broker


@pytest.fixture
def cluster(spark):
    """The session, with all executors there: a test before may have killed one."""
    from taskplace.spark.bridge import Bridge

    bridge, deadline = Bridge(spark), time.monotonic() + 90
    while len(bridge.executors()) < EXECUTORS:
        if time.monotonic() > deadline:
            pytest.fail("not within 90 s: all executors are there")
        time.sleep(0.05)
    return spark
