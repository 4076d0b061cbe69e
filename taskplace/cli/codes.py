"""Exit codes of the command line."""

DONE = 0  # for plan, explain and verify: stable, nothing has to move
FAILED = 1  # the check found differences, a plan breaks an invariant, Spark cannot be used
BAD_INPUT = 2  # nothing was started
MOVES = 3  # plan, explain, verify: moves are planned
INTERRUPTED = 130
