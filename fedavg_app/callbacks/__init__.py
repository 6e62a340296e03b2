"""Callbacks: what is told of every round of a training and of its end."""
