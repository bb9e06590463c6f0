"""Assignment 2: all-reduce around a ring, along a tree, and over two levels of a cluster.

The tasks are imported from their own modules (`ring`, `tree`, `hierarchical`): an unfinished file
never takes the others down with it.
"""
