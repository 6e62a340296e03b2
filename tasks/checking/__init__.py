"""Checks of a task: those that are made before every training, and those of `fedavg check`."""
