"""What a worker process of Spark does before each bin and each visit.

Spark collects garbage after each Python task. With the modules that a worker has loaded, that takes 20 to 40 ms: more
than most placed tasks, and for every bin and every visit. So the objects that exist once all modules are loaded are
frozen: the collector skips them from then on. It collects later objects as before.
"""

from __future__ import annotations

import gc
import sys

from taskplace.spark.state import warm

#: Calls of `begin` before which objects are frozen: modules are loaded by then, and those that the first tasks loaded.
FREEZE_AT = (1, 3)

_begun = 0


def begin() -> None:
    """Prepare this process for a bin or a visit."""
    global _begun
    _begun += 1
    warm.start()
    # Not in other processes, such as those of tests, whose objects at this point are not only loaded modules.
    if _begun in FREEZE_AT and "pyspark.worker" in sys.modules:
        gc.collect()  # so that no garbage is frozen
        gc.freeze()
