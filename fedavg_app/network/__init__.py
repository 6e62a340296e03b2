"""Flower's grid over the network, with bounds on what one device can cost the run."""
