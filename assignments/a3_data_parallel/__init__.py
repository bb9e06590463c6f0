"""Assignment 3: data parallelism, from whole replicas to training without a whole copy anywhere.

The tasks are imported from their own modules (`ddp`, `parameter_server`, `zero`): an unfinished
file never takes the others down with it.
"""
