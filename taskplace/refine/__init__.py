"""Decides HOW to reach the target: finds the step that is safe to run now.

The assignor decides where, the refiner decides how. Reading order: `step` with the warm-up budget, `parking`.
"""
