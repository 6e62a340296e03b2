"""A SuperLink with a gate in front of it, for `deployment/superlink.sh`."""
