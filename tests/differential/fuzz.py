"""Tries random cases for a given time: `python -m tests.differential.fuzz --seconds 3600 --seed 1`.

Each case has its own seed; the first one is `--seed`. A failing case is shrunk and written to a file in `--failures`.
`--replay FILE` runs the file again, and it can be copied to `tests/differential/corpus`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.differential import generate
from tests.differential.case import Case, load, to_json
from tests.differential.cuts import compare_cuts
from tests.differential.lives import Mismatch, Told, live
from tests.differential.shrink import shrunk

Way = Callable[[Case, Path], Told]
#: The ways to check a case: compare a run with the model, or with runs with other cuts and partitions.
WAYS: dict[str, Way] = {"model": live, "itself": compare_cuts}


def attempt(case: Case, way: str) -> tuple[Told | None, str, str]:
    """Return the events of a case, and the name and text of its failure."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="differential-", dir=memory))
    try:
        return WAYS[way](case, folder), "", ""
    except Mismatch as error:
        return None, f"mismatch, {error.where.split()[0]}", f"{error}"
    except Exception as error:
        return None, type(error).__name__, "".join(traceback.format_exception(error, limit=-3))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def way_of(file: Path) -> str:
    """Return the way in which a file's case is checked: its name begins with that."""
    way = file.name.partition("-")[0]
    return way if way in WAYS else "model"


def drawn(seed: int, way: str | None = None) -> tuple[Case, str]:
    """Return the case of a seed, and the way in which it is checked, unless that is given."""
    draw = Random(seed)
    way = way or draw.choice(["model", "model", "model", "itself"])
    alone = way == "itself"
    return generate.case(draw, generate.Wanted(calm=alone, orderless=alone, daring=not alone)), way


def report(case: Case, way: str, kind: str, how: str, seed: int, failures: Path, seconds: float) -> Path:
    """Shrink a failing case and write it to a file, which is returned."""
    small = shrunk(case, lambda smaller: attempt(smaller, way)[1] == kind, seconds)
    _, _, said = attempt(small, way)
    failures.mkdir(parents=True, exist_ok=True)
    file = failures / f"{way}-{seed}.json"
    file.write_text(to_json(replace(small, note=f"seed {seed}: {said or how}")), encoding="utf-8")
    return file


def main(argv: list[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first case")
    folder = Path("var/differential")
    parser.add_argument("--failures", type=Path, default=folder, help="where failing cases go")
    parser.add_argument("--shrink", type=float, default=60, help="seconds to make a failing case smaller")
    parser.add_argument("--replay", type=Path, nargs="*", help="run these files instead")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    if options.replay:
        failed = 0
        for file in options.replay:
            _, kind, how = attempt(load(file), way_of(file))
            print(f"{file}: {how or 'fine'}")
            failed += bool(kind)
        return 1 if failed else 0
    started, seed, totals, kinds = time.monotonic(), options.seed, Counter[str](), Counter[str]()
    # A long run that is interrupted still says what it has tried, also where a shell has it ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        while time.monotonic() - started < options.seconds:
            case, way = drawn(seed)
            told, kind, how = attempt(case, way)
            refused = told is not None and told.totals["refused"]
            kinds["failed" if kind else "refused" if refused else f"fine ({way})"] += 1
            if told is not None:
                totals += told.totals
            if kind:
                file = report(case, way, kind, how, seed, options.failures, options.shrink)
                print(f"seed {seed}: {kind}\n{how}\n{file}", flush=True)
            seed += 1
    print(f"seeds {options.seed} to {seed - 1}: {dict(kinds)}; {dict(totals)}")
    return 1 if kinds["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
