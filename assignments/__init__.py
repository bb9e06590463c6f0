"""The assignments, solved: the one source of the stubs in ``assignments/``."""
