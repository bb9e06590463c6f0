"""Assignment 8: expert parallelism, from the router to the whole layer.

The tasks are imported from their own modules (`router`, `dispatch`, `layer`): an unfinished file
never takes the others down with it.
"""
