"""Exit codes of the command line."""

DONE = 0  # for plan, explain and verify: stable, nothing has to move; inspect: the checkpoint is sound
FAILED = 1  # the check found differences, a plan breaks an invariant, a checkpoint is damaged, Spark cannot be used
BAD_INPUT = 2  # nothing was started
MOVES = 3  # plan, explain, verify: moves are planned; drain: they would be; can-remove: not yet
NO_DRIVER = 4  # status, drain, can-remove: no driver runs the checkpoint
NO_ANSWER = 5  # drain, can-remove: the driver did not answer in time; the request was withdrawn
INTERRUPTED = 130
