"""Partitioning: which examples belong to which client."""
