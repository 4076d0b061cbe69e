"""Minimum-cost flow, where assignors look for it: the solver itself is `taskplace.model.flow`.

It lies in the model, since `taskplace.verify` works out the lower bound of moves with it, without any assignor.
"""

from taskplace.model.flow import Network, cost_budget

__all__ = ["Network", "cost_budget"]
