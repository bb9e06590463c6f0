"""What `make bench` measures: `python -m bench [NAME …]`."""
