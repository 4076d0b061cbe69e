"""The minimum-cost flow for assignors, from `taskplace.model.flow`.

The solver is part of the model because `taskplace.verify` computes the lower bound of moves with it, without an
assignor.
"""

from taskplace.model.flow import Network, cost_budget

__all__ = ["Network", "cost_budget"]
