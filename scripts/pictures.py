"""Draws the pictures of docs/concepts.md into docs/img: `python scripts/pictures.py`.

The topology is that of conf/flights.yaml, as `taskplace topology` draws it. The other pictures are written here.
"""

from __future__ import annotations

import warnings
from pathlib import Path

from taskplace.cli.application import shown_topology

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
_STYLE = """
  bgcolor="white"
  node [fontname="Helvetica", fontsize=11, shape=box, style="rounded,filled", fillcolor="#eef3f7", color="#8aa4b5"]
  edge [fontname="Helvetica", fontsize=10, color="#4a6475"]
  graph [fontname="Helvetica", fontsize=11, color="#b8c7d1", style=rounded]
"""
LOSS = f"""digraph loss {{ {_STYLE}
  rankdir=LR compound=true
  subgraph cluster_before {{ label="before"
    a1 [label="executor 1\\nactive 0_0\\nstandby 0_1", fillcolor="#cfe0ec"]
    a2 [label="executor 2\\nactive 0_1\\nstandby 0_0"] }}
  subgraph cluster_loss {{ label="executor 1 is lost, within the batch"
    b2 [label="executor 2\\nactive 0_1\\nactive 0_0 (promoted)", fillcolor="#cfe0ec"] }}
  subgraph cluster_join {{ label="executor 3 joins"
    c2 [label="executor 2\\nactive 0_1\\nactive 0_0"]
    c3 [label="executor 3\\nwarm-up 0_0\\nstandby 0_1", fillcolor="#f6c667"] }}
  subgraph cluster_after {{ label="the warm-up has caught up"
    d2 [label="executor 2\\nactive 0_1\\nstandby 0_0"]
    d3 [label="executor 3\\nactive 0_0\\nstandby 0_1", fillcolor="#cfe0ec"] }}
  a2 -> b2 [ltail=cluster_before, lhead=cluster_loss]
  b2 -> c2 [ltail=cluster_loss, lhead=cluster_join]
  c2 -> d2 [ltail=cluster_join, lhead=cluster_after]
}}"""
BATCH = f"""digraph batch {{ {_STYLE}
  rankdir=LR
  plan [label="plan\\n(if something has changed)"]
  run [label="run each task\\nwhere its state is", fillcolor="#cfe0ec"]
  manifest [label="commit:\\none manifest", fillcolor="#f6c667"]
  publish [label="publish\\nto the sinks"]
  follow [label="standbys and warm-ups\\nfollow the changelog"]
  rows [label="rows of the batch", shape=plaintext, style=""]
  checkpoint [label="checkpoint:\\nchangelogs, snapshots, manifests", shape=cylinder]
  rows -> run
  plan -> run -> manifest -> publish
  manifest -> follow
  run -> checkpoint [label="changes", style=dashed]
  checkpoint -> follow [style=dashed]
}}"""


def pictures() -> dict[str, str]:
    """Return each picture in the DOT language, by the name of its file."""
    topology = shown_topology(str(ROOT / "conf" / "flights.yaml")).build()
    return {"topology": topology.to_dot(), "loss": LOSS, "batch": BATCH}


if __name__ == "__main__":
    import pygraphviz

    warnings.simplefilter("ignore", RuntimeWarning)  # what font libraries say about this machine
    for name, dot in pictures().items():
        pygraphviz.AGraph(string=dot).draw(IMAGES / f"{name}.svg", prog="dot")
