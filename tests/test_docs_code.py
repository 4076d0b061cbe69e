"""All code of the documentation runs in some test: each block has a kind that is run, and a test that runs its page.

Blocks with a prompt (`>>>`) are doctests. Other Python blocks are run in turn by the test that `RUN` names, or, if they
need a cluster, at least compiled, with every name that they import. YAML is read by what reads it in a file. Command
lines of taskplace, indented or after a `$`, are parsed with all of their arguments.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import shlex
from pkgutil import resolve_name

import pytest

from taskplace.cli import parser
from taskplace.spec.application import SECTIONS, Settings
from taskplace.spec.document import load
from tests.support.pages import PAGES, ROOT, blocks

#: The test that runs the Python blocks without a prompt, and the commands, of a page.
RUN = {
    "README.md": "tests/spark/test_docs_snippets.py",
    "docs/doctor.md": "tests/cli/test_docs_doctor.py",
    "docs/extending.md": "tests/spark/test_docs_extending.py",
    "docs/kafka.md": "tests/spark/test_docs_snippets.py",
    "docs/metrics.md": "tests/spark/test_docs_snippets.py",
    "docs/operations.md": "tests/cli/test_docs_operations.py",
    "docs/partitions.md": "tests/groups/test_docs.py",
    "docs/placement.md": "tests/test_docs_placement.py",
    "docs/processors.md": "tests/spark/test_docs_pages.py",
    "docs/quickstart.md": "tests/spark/test_docs_snippets.py",
    "docs/report.md": "tests/spark/test_live_run.py",
    "docs/runtime.md": "tests/spark/test_docs_snippets.py",
    "docs/steering.md": "tests/spark/test_docs_snippets.py",
    "docs/tutorial.md": "tests/spark/test_docs_tutorial.py",
    "docs/windows.md": "tests/spark/test_docs_pages.py",
}
#: Pages whose doctests a test of their own runs, because they need files, or Spark's packages.
OWN_DOCTESTS = {"docs/placement.md", "docs/extending.md"}
#: What a fence may say: languages with code that is run, and those that only show something.
KNOWN = {
    "python", "pycon", "yaml", "json", "console", "text", "", "{toctree}", "{eval-rst}",
    "{literalinclude}",
}  # fmt: skip


def pages_with(pattern: str) -> list[str]:
    names = [str(page.relative_to(ROOT)) for page in PAGES]
    return [
        name for name in names if re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    ]


def test_every_block_has_a_kind_that_is_known():
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", page.read_text(encoding="utf-8"), re.M)
        assert len(fences) % 2 == 0, page
        kinds = {fence.split(" ")[0] for fence in fences[::2]}
        assert kinds <= KNOWN, page


def test_every_page_with_code_has_a_test_that_names_it():
    plain = {*pages_with(r"^```console$"), *pages_with(r"^```python \w+\.py$")}
    plain |= {
        name
        for name in pages_with(r"^```python")
        if any(">>>" not in block for block in blocks(name, "python"))
    }
    assert plain == {page for page in RUN if (ROOT / page).exists()}
    for page, test in RUN.items():
        text = (ROOT / test).read_text(encoding="utf-8")
        assert page.rpartition("/")[2] in text or f'"{page.rpartition("/")[2][:-3]}"' in text, (page, test)


@pytest.mark.parametrize("page", sorted(set(pages_with(r"^>>> ")) - OWN_DOCTESTS))
def test_the_doctests_of_a_page_run(page):
    found = doctest.testfile(str(ROOT / page), module_relative=False)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("page", pages_with(r"^```python"))
def test_what_code_imports_is_there(page):
    """Also in code that needs a cluster or a broker to run."""
    for kind in ("python", "pycon"):
        for block in blocks(page, kind):
            if ">>>" in block:
                continue
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                    ("taskplace", "topology")
                ):
                    module = importlib.import_module(node.module or "")
                    assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


@pytest.mark.parametrize("page", pages_with(r"^```yaml"))
def test_yaml_is_read_as_in_a_file(page):
    """A block may be a part of a file: its sections, or entries of one. The keys of sections are known ones."""
    for block in blocks(page, "yaml"):
        written = load(block, page, environment={"OUT": "/data"})
        assert isinstance(written, dict)
        sections = {name: value for name, value in written.items() if name in SECTIONS}
        if sections:
            application = {"id": "x", "class": "a:B"} | sections.get("application", {})
            Settings.from_mapping({**sections, "application": application})


@pytest.mark.parametrize("page", pages_with(r"^ {4}make "))
def test_the_targets_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for target in re.findall(r"^ {4}make ([a-z-]+)", text, re.M):
        assert target in targets, target


def commands_of(text):
    """Return the arguments of each command line of taskplace that stands in a line of its own.

    >>> commands_of("    taskplace plan p.json   # why\\n$ taskplace plan - < p.json\\ntaskplace does it")
    [['plan', 'p.json'], ['plan', '-']]
    """
    found = []
    for line in re.findall(r"^(?: {4}|\$ )taskplace (.*)$", text, re.M):
        words = shlex.split(line, comments=True)
        end = next((k for k, word in enumerate(words) if word in ("|", ">", "<", "&&")), len(words))
        found.append(words[:end])
    return found


@pytest.mark.parametrize("page", pages_with(r"^(?: {4}|\$ )taskplace "))
def test_the_parser_takes_the_commands_that_a_page_shows(page):
    """With all of their arguments. A wrong one ends with the parser's own line."""
    for words in commands_of((ROOT / page).read_text(encoding="utf-8")):
        assert callable(resolve_name(parser().parse_args(words).command)), words
