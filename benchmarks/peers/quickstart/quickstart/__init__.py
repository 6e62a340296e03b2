"""MNIST as a user of Flower's PyTorch quickstart would write it."""
