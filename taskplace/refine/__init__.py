"""HOW to get there: the step that is safe to run now, on the way to the target.

The assignor decides where, the refiner decides how. Reading order: `step`, `budget`, `parking`.
"""
