"""`taskplace config` with references to the environment: they are shown as they are written, never what was put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.cli import main
from tests.cli.test_config import FILE, read, said


def test_references_to_the_environment_are_shown_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("ID", "MASTER", "OUT", "REPLICAS", "PATH_OF", "LOG")
    for name, value in zip(
        names, ("put-in", "local[4711]", "/put-in", "4711", "/put-in/a", "text"), strict=True
    ):
        monkeypatch.setenv(name, value)
    text = (
        FILE.replace("id: shop", "id: ${ID}").replace("local[2]", "${MASTER}").replace("'1'", "${REPLICAS}")
    )
    text = text.replace("{dir: var/here}", "{dir: '${OUT}/$${x}'}").replace("/data", "'${PATH_OF}'")
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(text)
    override = ["--set", "report.log=${LOG}", "--set", "runtime.tags.host-1.zone=${ID}"]
    values, spark = read(capsys, "--all", *override)
    assert values["checkpoint.dir"]["value"] == "${OUT}/$${x}"
    assert values["placement.num.standby.replicas"]["value"] == "${REPLICAS}"
    assert values["output.totals.path"]["value"] == "${PATH_OF}"
    assert said(values["report.log"]) == ("${LOG}", "--set", "--set")
    assert values["runtime.tags.host-1.zone"]["value"] == "${ID}"
    assert (spark["spark.app.name"]["value"], spark["spark.master"]["value"]) == ("${ID}", "${MASTER}")
    for output in ("text", "json"):
        assert main(["config", "shop.yaml", "--all", "--output", output, *override]) == 0
        shown = capsys.readouterr().out
        assert "put-in" not in shown and "4711" not in shown
