"""Callbacks: hooks called after each round and at the end of training."""
