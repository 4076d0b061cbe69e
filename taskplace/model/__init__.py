"""The values that the engine reads and writes: frozen, and convertible from and to JSON.

Reading order: `ids` (tasks), `config` (settings), `problem` (the cluster), `plan` (the result). `problem_columns` has a
problem as numpy columns, for code that works on all tasks at once.
"""
