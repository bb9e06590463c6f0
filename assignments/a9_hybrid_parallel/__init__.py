"""Assignment 9: all dimensions at once: where to put them, what they cost, and training with them.

The tasks are imported from their own modules (`mesh`, `planner`, `harness`, `train`): an unfinished
file never takes the others down with it.
"""
