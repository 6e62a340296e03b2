"""A SuperLink and SuperNodes on real machines: certificates, access, warm clients, services.

The package knows Flower's internals and nothing of the app: it starts what runs any app.
If the installed Flower lacks a part listed in `flower_parts`, it says so in one line.
"""
