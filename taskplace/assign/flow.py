"""Minimum-cost flow for assignors. The solver itself is `taskplace.model.flow`.

The solver is part of the model, because `taskplace.verify` uses it for the lower bound of moves, without any assignor.
"""

from taskplace.model.flow import Network, cost_budget

__all__ = ["Network", "cost_budget"]
