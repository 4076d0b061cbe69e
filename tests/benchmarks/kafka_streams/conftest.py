"""Benchmarks are scripts: their modules are found beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
