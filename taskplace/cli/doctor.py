"""`taskplace doctor`: what is ignored, contradictory or slow in a configuration, each with its remedy."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator

from taskplace.cli import codes
from taskplace.cli.doctor import gather
from taskplace.cli.terminal import INDENT, columns
from taskplace.doctor import Diagnosis, Finding, Severity, diagnose
from taskplace.wording import count, wrapped

#: How wide texts are at most. Remedies to paste are never broken; those that begin with # are comments.
WIDTH = 110
_CODES = {Severity.ERROR: codes.FAILED, Severity.WARNING: codes.WARNINGS}


def doctor(args: argparse.Namespace) -> int:
    """Print what the rules find. Return 0 for nothing above advice, 1 for errors, 6 for warnings without errors."""
    facts = gather(args.file, args.set, checkpoint=args.checkpoint, spark_properties=args.spark_properties)
    found = diagnose(facts)
    if args.output == "json":
        print(json.dumps({**found.to_dict(), "file": args.file, "checkpoint": args.checkpoint}, indent=1))
    else:
        print("\n".join(lines(found, min(WIDTH, columns()))))
    return codes.DONE if found.worst is None else _CODES.get(found.worst, codes.DONE)


def lines(found: Diagnosis, width: int = WIDTH) -> Iterator[str]:
    """Yield a diagnosis as text: findings worst first, then which rules could not look, and a summary."""
    for severity in Severity:
        of_it = [finding for finding in found.findings if finding.severity is severity]
        if of_it:
            yield _count(severity, len(of_it))
        for finding in of_it:
            yield from _finding(finding, width)
            yield ""
    for reason, rules in Counter(found.unable.values()).most_common():
        yield from wrapped(f"{count(rules, 'rule')} could not look: {reason}", width, others=INDENT)
    counted = [_count(severity, found.counts[severity]) for severity in Severity if found.counts[severity]]
    summary = f"{', '.join(counted) or 'nothing found'}; {count(len(found.looked), 'rule')} looked"
    yield from wrapped(summary, width, others=INDENT)


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield f"  {finding.path}  [{finding.rule}]"
    for name, text in (("found", finding.found), ("why", finding.why)):
        yield from wrapped(text, width, f"    {name:<8}", INDENT)
    if not finding.remedy.startswith("# "):  # to be copied as it is
        yield f"    remedy  {finding.remedy}"
        return
    first, *more = finding.remedy.split("; in ") if finding.remedy.startswith("# in ") else [finding.remedy]
    yield from wrapped(first, width, "    remedy  ", f"{INDENT}# ")
    for line in more:
        yield from wrapped(f"# in {line}", width, INDENT, f"{INDENT}# ")


def _count(severity: Severity, number: int) -> str:
    return (
        f"{number} pieces of advice"
        if severity is Severity.ADVICE and number != 1
        else ("1 piece of advice" if severity is Severity.ADVICE else count(number, severity))
    )
