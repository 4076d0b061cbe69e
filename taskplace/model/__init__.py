"""The values that the engine reads and writes: frozen, with JSON in and out.

Reading order: `ids` (what is placed), `config` (how), `problem` (the cluster as it is), `plan` (the answer).
`columns` is the same problem as numpy columns, for the code that works on all tasks at once.
"""
