"""Local training: the loop of SGD, its steps and batches, evaluation, and random streams."""
