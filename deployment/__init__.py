"""A SuperLink and SuperNodes on real machines: certificates, access, warm clients, services.

The package knows Flower's internals and nothing of the app: it starts what runs any app.
Where the installed Flower is none of `FLOWER_VERSIONS`, it says so in one line.
"""

# Versions whose undocumented parts this package was tested with, as version numbers begin.
FLOWER_VERSIONS = ("1.41.", "1.42.")
FLOWER_NAMES = "flwr " + " or ".join(f"{version}*" for version in FLOWER_VERSIONS)
