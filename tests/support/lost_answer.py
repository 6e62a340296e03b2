"""A device to whom the answer to each first announcement of a reply is lost.

Like `tests/support/hostile.py` it is installed in the device's processes.
"""

import time

from flwr.supernode.fleet_http_client import FleetHttpClient

# Long enough for the run to ask for the reply, which it does several times a second.
SECONDS = 3


def install():
    announce = FleetHttpClient.PushMessages

    def announce_twice(client, request):
        announce(client, request)
        time.sleep(SECONDS)
        return announce(client, request)

    FleetHttpClient.PushMessages = announce_twice
