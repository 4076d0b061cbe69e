"""The executors of the application: which of them may run tasks, which have gone, and whether that has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskplace.errors import InputError
from taskplace.spark.instances import instance_name
from topology.errors import nearest

if TYPE_CHECKING:
    from taskplace.spark.bridge import Executor
    from taskplace.spark.bridge_state import StateBridge

DECOMMISSION_POLLS = 10
"""Every tenth poll asks whether Spark decommissions executors: that takes a call per executor."""


class Executors:
    """The executors as one handle last read them, by instance.

    Lifetime: `present` and `ending` are replaced by `refresh`. `present` may run tasks. `ending` are being
    decommissioned by Spark, which gives them no tasks. `known` are all executors that were ever read.
    """

    def __init__(self, bridge: StateBridge) -> None:
        self.present: dict[str, Executor] = {}
        self.ending: frozenset[str] = frozenset()
        self.known: frozenset[str] = frozenset()
        self._bridge = bridge
        self._read = False
        self._polls = 0

    def refresh(self) -> None:
        """Read the executors from Spark."""
        self._read = True
        present = {executor.instance: executor for executor in self._bridge.executors()}
        # First: at no moment is an executor neither present nor ending.
        self.ending = self._bridge.decommissioned() - present.keys()
        self.present = present
        self.known |= self.present.keys() | self.ending

    @property
    def gone(self) -> frozenset[str]:
        """The executors that were there once, and not at the last `refresh`."""
        return self.known - self.present.keys() - self.ending

    def changed(self) -> bool:
        """Return whether other executors may run tasks than at the last `refresh`. Mostly one short call.

        Before the first `refresh` nothing has changed. After one that found no executors, the first to come is a
        change.
        """
        if not self._read:
            return False
        present = {executor.id for executor in self.present.values()}
        ending = {name.removeprefix("executor-") for name in self.ending}
        self._polls += 1
        if self._polls % DECOMMISSION_POLLS and self._bridge.alive() == present | ending:
            return False
        # Neither an executor that has not reported its cores yet, nor the end of an ending one, is a change.
        self.ending = self._bridge.decommissioned() - self.present.keys()
        return {executor.id for executor in self._bridge.executors()} != present

    def name_of(self, executor: object, *, gone: bool = False, ask: bool = True) -> str:
        """Return the instance that a user means by `executor`, which must exist; with `gone`, or have existed.

        Without `ask`, Spark is not asked. Errors: `InputError` for any other.
        """
        name = instance_name(executor)
        names = self.known if gone else frozenset()
        if name not in names and ask:
            names |= {running.instance for running in self._bridge.executors()}
        if name not in names:
            known = sorted(names)
            raise InputError(
                "executor", found=executor, expected=f"one of {known}", hint=nearest(name, known)
            )
        return name
