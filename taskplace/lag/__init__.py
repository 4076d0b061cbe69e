"""Which instances are most caught up on a task: the rules (`ranking`), and an index of copies by lag (`index`).

Reading order: `ranking`, then `index`. The engine applies the rules to all copies of a problem at once
(`taskplace.model.column_building`), the driver to the copies of one task, through its `LagIndex`.
"""

from taskplace.lag.index import LagIndex

__all__ = ["LagIndex"]
