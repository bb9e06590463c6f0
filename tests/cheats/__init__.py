"""Submissions that try to earn what they did not do, beside honest ones; see README.md."""
