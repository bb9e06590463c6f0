"""Assignment 7: DualPipe, the bidirectional pipeline of DeepSeek-V3, and its V-shaped half.

The tasks are imported from their own modules (`schedules`, `overlap`, `executor`): an unfinished
file never takes the others down with it.
"""
