"""The command line: `fedavg`, and `simulation.py`, which is the same."""
