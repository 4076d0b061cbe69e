"""Decides WHERE tasks belong: finds the target for the current cluster.

Reading order: `target` (selects the assignor; combines actives, standbys and stateless tasks), `active` with
`active_costs`, `flow` (the solver), `standby` with `standby_costs` and `sparse_standbys`, `stateless`. Variants:
`rack_standbys` (standbys in other racks), `rack_actives` (actives near their input), `weights` (tasks of unequal load).
Other assignors: `sticky`, and `registry` for custom ones. Inside an instance: `slots`.
"""
