"""The executors of the application: which may run tasks, which are gone, and whether that has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskplace.errors import InputError
from taskplace.spark.cluster import DECOMMISSION_POLLS
from taskplace.spark.instances import instance_name

if TYPE_CHECKING:
    from taskplace.spark.bridge import Executor
    from taskplace.spark.steering.bridge import StateBridge


class Executors:
    """The executors as one handle last read them, by instance.

    Lifetime: `refresh` replaces `present` and `ending`. Executors in `present` may run tasks. Spark is decommissioning
    those in `ending` and gives them no tasks. `known` has all executors that were ever read.
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
        # Set `ending` first, so that an executor is always in `present` or in `ending`.
        self.ending = self._bridge.decommissioned() - present.keys()
        self.present = present
        self.known |= self.present.keys() | self.ending

    @property
    def gone(self) -> frozenset[str]:
        """The executors that existed once, but not at the last `refresh`."""
        return self.known - self.present.keys() - self.ending

    def changed(self) -> bool:
        """Return whether the executors that may run tasks changed since the last `refresh`. Mostly one short call.

        Before the first `refresh` nothing has changed. After a `refresh` without executors, the first executor is a
        change.
        """
        if not self._read:
            return False
        present = {executor.id for executor in self.present.values()}
        ending = {name.removeprefix("executor-") for name in self.ending}
        self._polls += 1
        if self._polls % DECOMMISSION_POLLS and self._bridge.alive() == present | ending:
            return False
        # These are no changes: an executor that has not reported its cores yet, and the end of an ending executor.
        self.ending = self._bridge.decommissioned() - self.present.keys()
        return {executor.id for executor in self._bridge.executors()} != present

    def name_of(self, executor: object, *, gone: bool = False, ask: bool = True) -> str:
        """Return the instance that `executor` names. It must exist; with `gone`, it may also have existed.

        Without `ask`, only known executors count, without a call to Spark. Errors: `InputError` for any other.
        """
        name = instance_name(executor)
        names = self.known if gone else frozenset()
        if name not in names and ask:
            names |= {running.instance for running in self._bridge.executors()}
        if name not in names:
            known = sorted(names)
            raise InputError("executor", found=executor, expected=f"one of {', '.join(known)}")
        return name
