"""What all commands share: the version, an interrupt, a reader that has gone; what they load; schemas of their JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import taskplace
from taskplace.cli import drain, main, status
from taskplace.groups.partitioner import partition_for_key
from taskplace.model import schema as schemas
from taskplace.record.json_lines import schema as line_schema
from tests.support.command_line import STABLE, UNBALANCED, one_line


def test_the_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == f"taskplace {taskplace.__version__}"


def test_an_interrupt_is_130(monkeypatch, write, capsys):
    def interrupted(problem):
        raise KeyboardInterrupt

    monkeypatch.setattr(taskplace, "plan", interrupted)
    assert main(["plan", write(STABLE)]) == 130
    assert "interrupted" in one_line(capsys)


def test_a_reader_that_has_gone_is_no_traceback(write):
    command = f"{sys.executable} -c 'import sys; from taskplace.cli import main; sys.exit(main())' plan --output json"
    done = subprocess.run(
        ["bash", "-c", f"{command} {write(UNBALANCED)} | :"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""


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


@pytest.mark.parametrize("raw", [b"\xff", b"\xfe\x80a", b"\xc3", b"abc"])
def test_a_key_that_is_no_text_is_its_bytes(write, raw, capsys):
    group = {"topics": {"t": 5}, "members": {"a": {"topics": ["t"]}}}
    assert main(["partitions", write(group), "--key", "t", os.fsdecode(raw)]) == 0
    assert capsys.readouterr().out == f"t[{partition_for_key(raw, 5)}]  a\n"


@pytest.mark.parametrize(
    ("name", "made"),
    [("status-seen", status.json_schema), ("answer", drain.json_schema), ("run", line_schema)],
)
def test_a_schema_is_that_of_its_types(name, made):
    written = Path(schemas.__file__).with_name(f"{name}.json")
    assert written.read_text(encoding="utf-8") == json.dumps(made(), indent=2) + "\n", (
        f"write it to {written}"
    )
