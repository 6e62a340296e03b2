"""The server's end of a run: components, nodes, cohorts, rounds, evaluation and checkpoints."""
