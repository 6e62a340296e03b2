"""Devices' connections: how long messages take over them, and a virtual clock that counts it."""
