"""Decides WHERE tasks belong: finds the target for the current cluster.

Reading order: `target` (selects the assignor; combines actives, standbys and stateless tasks; the assignor `sticky`),
`active`, `standby`, `stateless`. Variants: `rack_standbys` (standbys in other racks), `rack_actives` (actives near
their input), `weights` (tasks of unequal load). Custom assignors: `registry`.
"""
