"""The executors of the application as one handle sees them: which there are, which there were, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskplace.errors import InputError
from taskplace.spark.steering.steered_queries import instance_name
from topology.errors import nearest

if TYPE_CHECKING:
    from taskplace.spark.bridge import Executor
    from taskplace.spark.bridge_state import StateBridge

DECOMMISSION_POLLS = 10
"""Whether Spark decommissions executors is asked at every tenth poll: it takes a call for each of them."""


class Executors:
    """What is known of the executors, by instance.

    Lifetime: `there` are those that might get tasks at the last look, and `ending` those that Spark was about to give
    up then, which get none any more; `met` are all there ever were.
    """

    def __init__(self, bridge: StateBridge) -> None:
        self.there: dict[str, Executor] = {}
        self.ending: frozenset[str] = frozenset()
        self.met: frozenset[str] = frozenset()
        self._bridge = bridge
        self._looked = False
        self._polls = 0

    def look(self) -> None:
        """See which there are now."""
        self._looked = True
        there = {executor.instance: executor for executor in self._bridge.executors()}
        self.ending = self._bridge.decommissioned() - there.keys()  # first: none is to be neither in between
        self.there = there
        self.met |= self.there.keys() | self.ending

    @property
    def gone(self) -> frozenset[str]:
        """Those that were there before the last look, and then no more."""
        return self.met - self.there.keys() - self.ending

    def changed(self) -> bool:
        """Return whether those that may get tasks are not those of the last look. Mostly one short call.

        Before the first look nothing has changed; after one that found none, one that comes is a change.
        """
        if not self._looked:
            return False
        known = {executor.id for executor in self.there.values()}
        ending = {name.removeprefix("executor-") for name in self.ending}
        self._polls += 1
        if self._polls % DECOMMISSION_POLLS and self._bridge.alive() == known | ending:
            return False
        # One that is registered but has not told its cores yet is no change, nor is the end of an ending one.
        self.ending = self._bridge.decommissioned() - self.there.keys()
        return {executor.id for executor in self._bridge.executors()} != known

    def known(self, executor: object, *, gone: bool = False, ask: bool = True) -> str:
        """Return the name of an executor that is there, or with `gone`, that is or was there.

        Without `ask`, Spark is not asked again. Errors: `InputError` for any other.
        """
        name = instance_name(executor)
        names = self.met if gone else frozenset()
        if name not in names and ask:
            names |= {found.instance for found in self._bridge.executors()}
        if name not in names:
            known = sorted(names)
            raise InputError(
                "executor", found=executor, expected=f"one of {known}", hint=nearest(name, known)
            )
        return name
