"""Assignment 0: links, paths and networks. No communication: only numbers, text and graphs.

The tasks are imported from their own modules (`links`, `topology`, `network`, `collective_cost`):
an unfinished file never takes the others down with it.
"""
