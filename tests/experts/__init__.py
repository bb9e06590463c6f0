"""The reference of assignment 8, beside and beyond what its checks ask."""
