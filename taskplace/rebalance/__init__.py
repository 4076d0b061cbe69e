"""Decides WHEN to plan: triggers, and the loop that puts plans in force by generation."""

from taskplace.rebalance.loop import Decision, ProbingSchedule, RebalanceLoop
from taskplace.rebalance.triggers import Trigger

__all__ = ["Decision", "ProbingSchedule", "RebalanceLoop", "Trigger"]
