"""Draw the picture of docs/placement.md: the worked example, planned round by round.

    python benchmarks/plot_placement.py [--dot] [FILE]

The problem is the JSON block of the page, the rounds are what the engine plans and a cluster in memory does with it,
so the picture shows what the page says. FILE is docs/img/placement.svg unless given; `--dot` prints the source only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import taskplace
from taskplace import Plan, Problem, Roles
from taskplace.simulation import Cluster

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "placement.md"
PICTURE = DOCS / "img" / "placement.svg"

COLOURS = {"active": ("#2f6f9f", "white"), "standby": ("#cfe0ec", "black"), "warmup": ("#f6c667", "black")}
NAMES = {"active": "active", "standby": "standby", "warmup": "warm-up"}


def rounds(problem: Problem) -> list[Plan]:
    """Return the plans from the problem to rest, with copies that catch up in one round."""
    cluster = Cluster.of(problem)
    plans: list[Plan] = []
    while not plans or plans[-1].followup:
        plans.append(taskplace.plan(cluster.problem()))
        cluster.apply(plans[-1])
        cluster.advance(problem.config.probing_rebalance_interval_ms)
    return plans


def dot(problem: Problem) -> str:
    """Return the picture as DOT: one panel per round, one row per instance, one cell per copy."""
    before = {i.id: Roles(i.active, i.standby, i.warmup) for i in problem.instances}
    plans = rounds(problem)
    panels = [("before", before)]
    panels += [(f"step {k}", dict(plan.assignment)) for k, plan in enumerate(plans, 1)]
    panels[-1] = (f"{panels[-1][0]} = target", panels[-1][1])
    lines = [
        "digraph placement {",
        '  graph [rankdir=LR, nodesep=0.2, ranksep=0.35, pad=0.1, bgcolor=white, fontname="Helvetica"];',
        '  node [shape=plain, fontname="Helvetica", fontsize=11];',
        '  edge [color="#555555", arrowsize=0.8];',
    ]
    previous: dict[str, Roles] = before
    for k, (title, assignment) in enumerate(panels):
        rows = "".join(_row(name, roles, previous.get(name)) for name, roles in sorted(assignment.items()))
        table = '<table border="0" cellborder="0" cellspacing="4" cellpadding="3">'
        lines.append(f'  p{k} [label=<{table}<tr><td colspan="9"><b>{title}</b></td></tr>{rows}</table>>];')
        previous = assignment
    lines += [f"  p{k} -> p{k + 1};" for k in range(len(panels) - 1)]
    key = "".join(_cell(NAMES[role], role, new=False) for role in COLOURS)
    key += '<td border="2" color="#c0392b">changed in this step</td>'
    lines.append(f'  key [label=<<table border="0" cellborder="0" cellspacing="4"><tr>{key}</tr></table>>];')
    lines.append("}")
    return "\n".join(lines) + "\n"


def _row(name: str, roles: Roles, previous: Roles | None) -> str:
    cells = []
    for role in COLOURS:
        had = getattr(previous, role) if previous else ()
        cells += [_cell(str(t), role, new=t not in had) for t in getattr(roles, role)]
    empty = "" if cells else '<td colspan="6" align="left"><font color="#888888">nothing</font></td>'
    return f"<tr><td><b>{name}</b></td>{''.join(cells)}{empty}</tr>"


def _cell(text: str, role: str, *, new: bool) -> str:
    fill, ink = COLOURS[role]
    border = 'border="2" color="#c0392b"' if new else 'border="1" color="#555555"'
    return f'<td bgcolor="{fill}" {border}><font color="{ink}">{text}</font></td>'


def page_problem() -> Problem:
    """Return the problem of the worked example, as the page has it."""
    block = PAGE.read_text(encoding="utf-8").split("```json\n")[1].split("```")[0]
    return Problem.from_dict(json.loads(block))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=PICTURE)
    parser.add_argument("--dot", action="store_true", help="print DOT, draw nothing")
    args = parser.parse_args()
    source = dot(page_problem())
    if args.dot:
        print(source, end="")
        return
    import pygraphviz  # of the extra "plots"

    pygraphviz.AGraph(string=source).draw(str(args.file), format="svg", prog="dot")
    print(f"{args.file} written")


if __name__ == "__main__":
    main()
