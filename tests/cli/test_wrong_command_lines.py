"""A wrong command line is one line that names the nearest known word, and nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from taskplace.cli import main


def refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("taskplace: ")
    assert out.err.count("\n") == 1
    return out.err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["plann"], "COMMAND: found 'plann', expected one of run, "),
        (["plann"], "; did you mean 'plan'?; see taskplace --help"),
        (["stauts", "x"], "did you mean 'status'?"),
        (["can_remove", "x", "1"], "did you mean 'can-remove'?"),
        (["--verson"], "did you mean '--version'?; see taskplace --help"),
        (["plan", "p.json", "--ouput", "json"], "plan: found option '--ouput', expected --help, --output, --html; "),
        (["plan", "p.json", "--ouput=json"], "did you mean '--output'?; see taskplace plan --help"),
        (["plan", "--ouput"], "found option '--ouput'"),  # and not that FILE is missing
        (["plan", "p.json", "--out", "json"], "found option '--out'"),  # no abbreviations
        (["run", "app.yaml", "-check"], "did you mean '--check'?"),
        (["status", "c", "--wach"], "did you mean '--watch'?"),
        (["plan", "p.json", "--output", "jsn"], "--output: found 'jsn', expected one of text, json; did you mean"),
        (["run"], "run: the following arguments are required: FILE; for example: taskplace run app.yaml --check; see"),
        (["drain", "c"], "required: EXECUTOR; for example: taskplace drain /data/checkpoint executor-2"),
        (["simulate", "p.json", "--limit", "many"], "argument --limit: invalid int value: 'many'"),
        (["plan", "a.json", "b.json"], "taskplace: plan: unrecognized arguments: b.json; for example: taskplace plan "),
        (["plan", "a.json", "b.json"], "; see taskplace plan --help\n"),
        (["help", "plann"], "did you mean 'plan'?"),
        (["pla\nn"], "found 'pla\\nn'"),
        (["\udcff"], "found '\\udcff'"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_what_is_near(
    command: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(command, capsys)


@pytest.mark.parametrize(
    "command",
    [
        ["partitions", "none.json", "--key", "topic", "-5"],
        ["simulate", "none.json", "--random-events", "2", "--seed", "-5"],
        ["plan", "--", "--no-such-option"],
        ["run", "none.yaml", "--set=a.b=--output"],
    ],
)
def test_what_only_looks_like_an_option_is_none(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["status", "{}", "--count", "2"], "--count: found 2, expected it only with --watch"),
        (["status", "{}", "--interval", "2"], "--interval: found 2.0, expected it only with --watch"),
        (["simulate", "none.json", "--seed", "7"], "--seed: found 7, expected it only with --random-events"),
        (["plan", "none.json", "--html", "{}/none/p.html"], "/none does not exist: mkdir -p "),
        (["simulate", "none.json", "--html", "{}/none/p.html"], "--html: found "),
        (["report", "none.json", "--out", "{}/none/p.html"], "--out: found "),
        (["topology", "none.yaml", "--svg", "{}/none/p.svg"], "--svg: found "),
    ],
)
def test_an_option_that_would_do_nothing_or_make_a_directory_is_refused(
    command: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the file is read."""
    assert main([word.format(tmp_path) for word in command]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["help"], ["help", "drain"], ["version"]])
def test_help_and_version_are_given_as_words_too(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(words: list[str]) -> str:
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        return capsys.readouterr().out

    assert shown(command) == shown([*command[1:], f"--{command[0]}"])
