"""Decides WHERE tasks belong: finds the target for the current cluster.

Reading order: `target` (which assignor, and how actives, standbys and stateless tasks are put together), `active` with
`active_costs`, `flow` (the solver), `standby` with `standby_costs` and `sparse_standbys`, `stateless`. Then variants:
`rack_standbys` (standbys in other racks), `rack_actives` (actives near their input), `weights` (tasks of unequal load).
Other assignors: `sticky`, and `registry` for your own. Inside an instance: `slots`.
"""
