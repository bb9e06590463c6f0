"""What people see of a run: the terminal, files, and the memory of the last run."""
