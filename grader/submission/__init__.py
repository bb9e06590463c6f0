"""Submissions: links that people hand in, the commits behind them, and a table of results."""
