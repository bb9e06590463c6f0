"""Assignment 4: tensor parallelism, a layer's weights cut over the ranks of a group.

The tasks are imported from their own modules (`mappings`, `layers`, `cross_entropy`,
`transformer`): an unfinished file never takes the others down with it.
"""
