"""The notebook runs from its first cell to its last, and shows plan and simulation as tables."""

from __future__ import annotations

import pytest

from tests.support.pages import ROOT

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")


def test_the_tour_runs_and_shows_tables(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the kernel, a process of its own
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs"
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert len(shown) == 2
    assert all(text.startswith("<table><caption>") for text in shown)
    assert "<td>0_1</td><td>warmup</td><td>a</td><td>c</td>" in shown[0]
    assert "<td>kill a</td>" in shown[1]
    assert outputs[-1].data["text/plain"] == "(True, 2)"
