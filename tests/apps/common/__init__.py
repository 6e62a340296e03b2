"""A Flower app in the form of Flower's quickstarts, whose model and training are in task.py."""
