"""What a worker process of Spark does before each bin and each visit.

Spark collects garbage after each Python task. With the modules that a worker has loaded, that takes 20 to 40 ms: more
than most placed tasks, and for every bin and every visit. So the objects of loaded modules are frozen: the collector
skips them from then on. It collects later objects as before.

Modules may be loaded at any time: PyArrow loads pandas with its first scalar, and a processor what it imports. So
whenever a worker has loaded modules since it froze its objects, it freezes them again.
"""

from __future__ import annotations

import gc
import sys

from taskplace.spark.state import environment as warm

#: How many modules were loaded when this process froze its objects; 0: it has not.
_frozen_modules = 0


def begin() -> None:
    """Prepare this process for a bin or a visit."""
    warm.start()
    # Not in other processes, such as those of tests, whose objects at this point are not only loaded modules.
    if "pyspark.worker" in sys.modules:
        freeze()


def freeze() -> None:
    """Freeze all objects of this process, if it has loaded modules since it last did."""
    global _frozen_modules
    if len(sys.modules) != _frozen_modules:
        gc.collect()  # so that no garbage is frozen
        gc.freeze()
        _frozen_modules = len(sys.modules)
