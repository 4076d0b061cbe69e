"""Decides which instances are most caught up on a task: the rules (`ranking`), and an index of copies (`index`).

Reading order: `ranking`, then `index`. The engine applies the rules to all copies of a problem at once
(`taskplace.model.problem_columns`). The driver applies them to the copies of one task, through its `LagIndex`.
"""

from taskplace.lag.index import LagIndex

__all__ = ["LagIndex"]
