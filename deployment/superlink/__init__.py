"""A SuperLink that serves only the fleet API to other machines, for `deployment/superlink.sh`."""
