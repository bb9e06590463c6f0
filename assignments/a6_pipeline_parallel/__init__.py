"""Assignment 6: pipeline parallelism, from the schedule on paper to gradients on many ranks.

The tasks are imported from their own modules (`partition`, `schedules`, `stage`, `executor`): an
unfinished file never takes the others down with it.
"""
