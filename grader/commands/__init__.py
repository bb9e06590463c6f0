"""Commands of `grader` that fill a module of their own; `cli.py` registers them."""
