"""The command line: exit codes, one-line errors, JSON in and out; no Spark is started here."""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import taskplace
from taskplace.cli import main

STABLE = {
    "schema": "taskplace.problem/1",
    "tasks": [{"id": "0_0"}, {"id": "0_1"}],
    "instances": [
        {"id": "a", "active": ["0_0"], "lags": {"0_0": 0}},
        {"id": "b", "active": ["0_1"], "lags": {"0_1": 0}},
    ],
}
UNBALANCED = {
    "tasks": [{"id": "0_0", "end_offset": 50_000}, {"id": "0_1", "end_offset": 50_000}],
    "instances": [{"id": "a", "active": ["0_0", "0_1"], "lags": {"0_0": 0, "0_1": 0}}, {"id": "b"}],
}
BAD = {"tasks": [{"id": "0-3"}], "instances": []}
COMMANDS = ["plan", "explain", "verify"]

APPLICATION = """
from taskplace.model.events import CheckResult
from topology import Topology


class Shop:
    def __init__(self, settings):
        self.settings = settings

    def topology(self):
        topo = Topology("shop")
        orders = topo.source("orders", key=["id"], partitions=4)
        orders.process(lambda context, rows: rows, name="clean").sink("clean-orders")
        return topo

    def sources(self, spark):
        return {}

    def prepare(self):
        pass

    def check(self, spark):
        return CheckResult(True, "right")


class Broken(Shop):
    def topology(self):
        topo = Topology("shop")
        left = topo.source("orders", key=["id"], partitions=4)
        left.join_table(topo.source("items", key=["id"], partitions=5), name="joined").sink("out")
        return topo


class Waiting(Shop):
    def topology(self):
        topo = Topology("shop")
        topo.source("orders", key=["id"]).process(lambda context, rows: rows, name="clean").sink("out")
        return topo


class Twice(Shop):
    def topology(self):
        topo = Topology("shop")
        topo.source("orders", partitions=4).sink("out")
        topo.source("orders", partitions=4, name="again").sink("too")
        return topo


class Half:
    def topology(self): ...


lonely = 3
"""


@pytest.fixture
def write(tmp_path):
    def write(document, name="problem.json"):
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return str(path)

    return write


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """An application file in the current directory, and the module it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (tmp_path / "shop.py").write_text(APPLICATION)

    def write(cls="shop:Shop", more=""):
        (tmp_path / "shop.yaml").write_text(f"application: {{id: shop, class: '{cls}'}}\n{more}")
        return "shop.yaml"

    yield write
    sys.modules.pop("shop", None)


def one_line(capsys):
    err = capsys.readouterr().err
    assert err.startswith("taskplace: ")
    assert err.count("\n") == 1
    return err


# -- the engine ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("problem", "code"), [(STABLE, 0), (UNBALANCED, 3)])
def test_the_exit_code_says_whether_anything_has_to_move(command, problem, code, write, capsys):
    assert main([command, write(problem)]) == code
    out = capsys.readouterr()
    assert out.out.strip()
    assert out.err == ""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("document", "says"),
    [
        (BAD, "tasks[0].id: found '0-3', expected a task id like '0_3'"),
        ("{", "problem.json:1:2: found 'Expecting property name"),
        ("[]", "problem"),
        (
            {"tasks": [], "instances": [], "config": {"max.warmup.replica": 1}},
            "did you mean 'max.warmup.replicas'?",
        ),
    ],
)
def test_bad_input_is_one_line_and_code_2(command, document, says, write, capsys):
    assert main([command, write(document)]) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_file(command, tmp_path, capsys):
    assert main([command, str(tmp_path / "none.json")]) == 2
    assert "No such file" in one_line(capsys)


def test_the_json_of_a_plan_is_the_contract(write, capsys):
    assert main(["plan", "--output", "json", write(UNBALANCED)]) == 3
    out = capsys.readouterr().out
    assert json.loads(out)["schema"] == "taskplace.plan/1"
    assert out == taskplace.plan(UNBALANCED).to_json()


def test_the_slots_of_an_instance_are_shown(write, capsys):
    tasks = [{"id": f"0_{p}"} for p in range(3)]
    assert main(["plan", write({"tasks": tasks, "instances": [{"id": "a", "capacity": 2}]})]) == 3
    assert capsys.readouterr().out.startswith("a  3 active, 0 standby, 0 warm-up; actives per slot: 2 1\n")


def test_explain_has_a_reason_for_each_task_or_for_one(write, capsys):
    problem = write(UNBALANCED)
    assert main(["explain", problem]) == 3
    whole = capsys.readouterr().out
    assert [line for line in whole.splitlines() if line.startswith("0_")] == [
        "0_0: stateful, changelog of 50000 records",
        "0_1: stateful, changelog of 50000 records",
    ]
    assert main(["explain", problem, "--task", "0_1"]) == 3
    one = capsys.readouterr().out
    assert one.startswith("0_1: ")
    assert one in whole
    assert main(["explain", problem, "--output", "json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [(t["task"], t["role"], t["instance"]) for t in found["tasks"]] == [
        ("0_0", "active", "a"),
        ("0_1", "active", "a"),
    ]
    assert found["tasks"][1]["why"] in " ".join(one.split())
    assert [(r["role"], r["instance"]) for r in found["tasks"][1]["followers"]] == [("warmup", "b")]
    assert found["tasks"][1]["refused"] == [
        {"instance": "b", "why": "it lacks 50000 records, and a is caught up"}
    ]
    assert [m["role"] for m in found["moves"]] == ["warmup"]
    assert found["optimality"] == {"moves": 1, "lower_bound": 1, "forced_promotions": 0}
    assert main(["explain", problem, "--task", "9_9"]) == 2
    assert "task: found '9_9'" in one_line(capsys)


@pytest.mark.parametrize(
    ("problem", "code", "says"),
    [
        (STABLE, 0, "yes: every task it has is caught up elsewhere, or needs no copy"),
        (
            UNBALANCED,
            3,
            "no: 2 tasks must catch up elsewhere first: 0_0 (no other copy), 0_1 (no other copy)",
        ),
    ],
)
def test_whether_an_instance_can_be_removed(problem, code, says, write, capsys):
    file = write(problem)
    assert main(["explain", file, "--can-remove", "a"]) == code
    assert capsys.readouterr().out == says + "\n"
    assert main(["explain", file, "--can-remove", "a", "--output", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert (found["can_remove"], found["text"]) == (code == 0, says)
    assert [w["task"] for w in found["waits"]] == (["0_0", "0_1"] if code else [])
    assert main(["explain", file, "--can-remove", "c"]) == 2
    assert "instance: found 'c', expected one of the 2 instances" in one_line(capsys)
    assert main(["explain", file, "--can-remove", "a", "--task", "0_0"]) == 2
    assert "--task" in one_line(capsys)


def test_a_plan_that_lists_no_moves_is_judged_by_its_assignment(write, capsys):
    problem = write({**STABLE, "tasks": [{"id": t, "end_offset": 9} for t in ("0_0", "0_1")]})
    plan = taskplace.plan(json.loads(Path(problem).read_text())).to_dict()
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 0
    assert capsys.readouterr().out == "valid; stable: nothing has to move\n"
    bare = {"assignment": {"a": {"active": ["0_1"]}, "b": {"active": ["0_0"]}}}
    held = {"id": "a", "active": ["0_0"], "lags": {"0_0": 0, "0_1": 0}}
    both = {"id": "b", "active": ["0_1"], "lags": {"0_0": 0, "0_1": 0}}
    problem = write(
        {"tasks": [{"id": t, "end_offset": 9} for t in ("0_0", "0_1")], "instances": [held, both]}
    )
    assert main(["verify", problem, "--plan", write(bare, "plan.json")]) == 3
    assert capsys.readouterr().out == "valid; 4 roles change now, and nothing after that\n"
    assert (
        main(["verify", problem, "--plan", write({**bare, "target": bare["assignment"]}, "plan.json")]) == 1
    )
    assert "broken: minimal: 2 moves where 0 are enough" in capsys.readouterr().out


def test_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(STABLE)))
    assert main(["plan", "-"]) == 0
    assert "stable" in capsys.readouterr().out


def test_verify_takes_a_plan_from_elsewhere(write, capsys):
    problem, plan = write(UNBALANCED), taskplace.plan(UNBALANCED).to_dict()
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 3
    capsys.readouterr()
    plan["assignment"]["b"]["active"] = plan["assignment"]["a"]["active"]
    assert main(["verify", problem, "--plan", write(plan, "plan.json")]) == 1
    assert "broken: once: " in capsys.readouterr().out
    assert main(["verify", problem, "--plan", write(plan, "plan.json"), "--output", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["valid"]
    assert found["violations"][0]["invariant"] == "once"
    assert main(["verify", problem, "--plan", write({"assignment": 3}, "plan.json")]) == 2


def test_planning_does_not_load_spark(write):
    code = (
        "import sys; from taskplace.cli import main; main(['plan', sys.argv[1]]);"
        "print([m for m in ('pyspark', 'pyarrow', 'yaml', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, write(STABLE)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"taskplace {taskplace.__version__}"


def test_an_unknown_command_is_bad_input(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plann"])
    assert stopped.value.code == 2


def test_an_interrupt_is_130(monkeypatch, write, capsys):
    def interrupted(problem):
        raise KeyboardInterrupt

    monkeypatch.setattr(taskplace, "plan", interrupted)
    assert main(["plan", write(STABLE)]) == 130
    assert "interrupted" in one_line(capsys)


def test_an_invalid_plan_is_a_failure(monkeypatch, write, capsys):
    def invalid(problem):
        raise taskplace.errors.InvalidPlan("once: 0_0")

    monkeypatch.setattr(taskplace, "plan", invalid)
    assert main(["plan", write(STABLE)]) == 1
    assert "once: 0_0" in one_line(capsys)


def test_a_reader_that_has_gone_is_no_traceback(write):
    command = f"{sys.executable} -c 'import sys; from taskplace.cli import main; sys.exit(main())' plan --output json"
    done = subprocess.run(
        ["bash", "-c", f"{command} {write(UNBALANCED)} | :"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""


# -- applications -------------------------------------------------------------------------------------------


def test_checking_starts_nothing(shop, capsys):
    assert main(["run", shop(), "--check"]) == 0
    assert capsys.readouterr().out == "shop.yaml: valid; shop: 1 subtopologies, 4 tasks\n"


@pytest.mark.parametrize("output", ["text", "json", "dot"])
def test_the_topology_of_an_application(shop, capsys, output):
    assert main(["topology", shop(), "--output", output]) == 0
    out = capsys.readouterr().out
    assert "clean-orders" in out
    if output == "json":
        json.loads(out)
    if output == "text":
        assert "subtopology 0: 4 tasks, no stores" in out


@pytest.mark.parametrize("flags", [["--svg", "shop.svg"], ["--svg", "-"]])
def test_the_topology_is_drawn(shop, capfd, tmp_path, flags):
    pytest.importorskip("pygraphviz")
    assert main(["topology", shop(), *flags]) == 0
    out = capfd.readouterr()
    drawn = (tmp_path / "shop.svg").read_text() if flags[1] != "-" else out.out
    assert out.err == ""
    assert drawn.lstrip().startswith("<?xml")
    assert "Sub&#45;topology 0: 4 tasks" in drawn
    assert "clean&#45;orders" in drawn


def test_a_picture_that_cannot_be_made_is_one_line(shop, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    assert main(["topology", shop(), "--svg", "-"]) == 2
    assert "pip install 'taskplace[plots]'" in one_line(capsys)
    monkeypatch.undo()


def test_a_picture_needs_a_place(shop, capsys):
    pytest.importorskip("pygraphviz")
    assert main(["topology", shop(), "--svg", "no/such/place.svg"]) == 2
    assert "--svg: found 'no/such/place.svg'" in one_line(capsys)


def test_dot_has_a_flag_of_its_own(shop, capsys):
    assert main(["topology", shop(), "--dot"]) == 0
    assert capsys.readouterr().out.startswith('digraph "shop" {')
    with pytest.raises(SystemExit) as stopped:
        main(["topology", shop(), "--dot", "--output", "json"])
    assert stopped.value.code == 2


@pytest.mark.parametrize("flags", [[], ["--check"]])
def test_a_topology_that_is_not_ready_is_not_run(shop, capsys, flags):
    assert main(["run", shop("shop:Waiting"), *flags]) == 2
    assert one_line(capsys) == (
        "taskplace: topology 'shop' is not ready: topic 'orders': missing, its partition count is not known\n"
    )
    assert main(["topology", shop("shop:Waiting")]) == 0
    assert "not ready: topic 'orders': missing" in capsys.readouterr().out


def test_a_topic_is_brought_in_once_and_read_as_often_as_one_likes(shop, capsys):
    assert main(["run", shop("shop:Twice"), "--check"]) == 2
    assert "topic 'orders' is brought in by node 'orders' already" in one_line(capsys)


YAML_ALONE = """application: {id: clicks}
topology:
  sources: {clicks: {key: page, partitions: 3}}
  nodes:
    visits: {process: clicks, processor: count, options: {by: {page: string}}}
    pages: {process: clicks, processor: deduplicate, options: {by: {page: string}}}
    out: {sink: visits}
    seen: {sink: pages}
input: {clicks: {format: json, path: in, schema: "page string"}}
output: {out: {path: out}, seen: {path: seen}}
"""


def test_an_application_may_be_yaml_alone(shop, tmp_path, capsys):
    pytest.importorskip("pyspark")
    (tmp_path / "clicks.yaml").write_text(YAML_ALONE)
    assert main(["run", "clicks.yaml", "--check"]) == 0
    assert "clicks: 1 subtopologies, 3 tasks" in capsys.readouterr().out
    assert main(["topology", "clicks.yaml"]) == 0
    assert "Processor: visits (stores: [visits])" in capsys.readouterr().out
    for override, says in [
        ("topology.nodes.visits.processor=cuont", "topology.nodes.visits.processor: found 'cuont'"),
        ("topology.sources.clicks.partitions=", "topic 'clicks': missing"),
        (
            "input.clicks.schema=side string",
            "input.clicks.schema: found 'side', expected the key column 'page'",
        ),
    ]:
        assert main(["run", "clicks.yaml", "--set", override]) == 2
        assert says in one_line(capsys)


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        ("shopp:Shop", "did you mean 'shop'?"),
        ("nothing.like.it:Shop", "a module that can be imported in"),
        ("shop:Shopp", "did you mean 'shop:Shop'?"),
        ("shop:lonely", "a class with the methods topology, sources"),
        ("shop:Half", "it lacks sources"),
    ],
)
def test_a_class_that_is_not_there_or_not_right(shop, capsys, cls, says):
    assert main(["run", shop(cls)]) == 2
    line = one_line(capsys)
    assert "application.class: found" in line
    assert says in line


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_package\n", "it needs 'no_such_package'"),
        ("def (\n", "invalid syntax"),
        ("from shop import x\n", "x"),
    ],
)
def test_a_module_that_does_not_load(shop, tmp_path, capsys, source, says):
    (tmp_path / "shop.py").write_text(source)
    assert main(["run", shop()]) == 2
    line = one_line(capsys)
    assert "a module that loads" in line
    assert says in line


def test_a_topology_that_cannot_be_is_bad_input(shop, capsys):
    assert main(["run", shop("shop:Broken")]) == 2
    line = one_line(capsys)
    assert "orders" in line
    assert "items" in line


def test_a_bad_configuration_is_bad_input_before_anything_is_imported(shop, capsys):
    assert main(["run", shop(more="placement: {num.standby.replica: 1}\n")]) == 2
    assert "placement.num.standby.replica" in one_line(capsys)
    assert "shop" not in sys.modules
    assert main(["run", shop(), "--set", "runtime.snapshot.interval.batches=0"]) == 2
    assert "runtime.snapshot.interval.batches: found 0" in one_line(capsys)


def test_workers_find_what_lies_in_the_current_directory(shop, tmp_path, capsys, monkeypatch):
    import os

    monkeypatch.setenv("PYTHONPATH", "/already/there")
    assert main(["run", shop(), "--check"]) == 0
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/already/there"]


def test_running_hands_everything_to_the_runtime(shop, monkeypatch, tmp_path):
    app = pytest.importorskip("taskplace.spark.app")
    calls = []

    def run(settings, application, reporter):
        calls.append((settings.application.id, type(application).__name__, type(reporter).__name__))
        return 1

    monkeypatch.setattr(app, "run", run)
    assert main(["run", shop(), "--set", "report.progress=plain"]) == 1
    assert calls == [("shop", "Shop", "PlainReporter")]


def test_warnings_stand_where_everything_else_does(shop, monkeypatch, capsys):
    app = pytest.importorskip("taskplace.spark.app")

    def run(settings, application, reporter):
        logging.getLogger("taskplace.spark").warning("cannot follow %s", "0_1")
        record = logging.makeLogRecord(
            {"levelno": logging.ERROR, "msg": "while sending", "module": "java_gateway"}
        )
        logging.getLogger().handle(record)
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", run)
    before = list(logging.getLogger().handlers)
    assert main(["run", shop(), "--set", "report.progress=plain"]) == 130
    assert logging.getLogger().handlers == before
    out = capsys.readouterr()
    assert out.out == "preparing the input\ncannot follow 0_1\n"
    assert out.err == "taskplace: interrupted\n"


def test_the_flights_application_is_valid(monkeypatch, capsys):
    pytest.importorskip("pyspark")
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    assert main(["run", "conf/flights.yaml", "--check"]) == 0
    assert "2 subtopologies, 24 tasks" in capsys.readouterr().out
    assert main(["run", "conf/flights.yaml", "--check", "--set", "input.file=3"]) == 2
    assert "input.file: found an unknown key" in one_line(capsys)
    assert main(["run", "conf/flights.yaml", "--check", "--set", "input.repeated=2"]) == 2
    assert "input.repeated: found 2" in one_line(capsys)
