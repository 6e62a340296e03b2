"""Classes of devices for ``links``."""

FAST_AND_SLOW = """[[class]]
name = "fast"
up = 50
down = 50

[[class]]
name = "slow"
up = 1
down = 50
"""
