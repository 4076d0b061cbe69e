"""WHERE tasks belong: the target, for the cluster as it is.

Reading order: `target` (which assignor, and what it puts together), `active` and its `costs` (the flow), `flow` (the
solver), `standby` with `prices` and `anywhere`, `stateless`. Then what changes the question: `spread` (standbys in
other racks), `traffic` (actives near their input), `weights` (tasks of unequal load); other answers: `sticky`, and
`registry` for your own; and the same question inside an instance: `slots`.
"""
