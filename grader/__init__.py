"""TinyParallel's grader: a simulated cluster, workers, checks and reports."""

__version__ = "0.1.0"
