"""A SuperLink with a gate before it, for `deployment/superlink.sh`."""
