"""A SuperLink that serves only the fleet API to other machines, and judges what devices send.

    python -m deployment.superlink [--max-reply-bytes BYTES] [--allow-origin ORIGIN] [OPTION]...

The options are those of flower-superlink. Devices reach it from anywhere with a registered key.
`flwr`, which starts runs and registers keys, works on this machine only.
"""

import argparse
import re
import sys
from pathlib import Path

from sqlalchemy.exc import DatabaseError
from starlette.middleware import Middleware

from deployment.superlink.deliveries import Deliveries, RunRequests
from deployment.superlink.fleet_only import FleetApiOnly
from deployment.superlink.gate import Gate
from deployment.superlink.internals import run_superlink
from deployment.superlink.monitor import Monitor
from deployment.superlink.one_origin import one_origin
from deployment.superlink.reply_limits import Replies

# What is listened on: this machine only, or all interfaces. The process that starts ServerApps
# connects to this address, from the same; the filter would refuse any other, and runs stay pending.
HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104


def main() -> None:
    """Run the SuperLink until it is ended; exit with one line if that cannot be done safely."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--max-reply-bytes", type=int, default=0)
    parser.add_argument("--allow-origin", default="")
    own, sys.argv[1:] = parser.parse_known_args(sys.argv[1:])
    flowers = argparse.ArgumentParser(add_help=False)
    flowers.add_argument("--database", default="superlink.db")
    flowers.add_argument("--host", default="127.0.0.1")
    given, _ = flowers.parse_known_args()
    # Replies on their way are where the SuperLink puts them afterwards.
    database = Path(given.database).resolve()
    replies, deliveries = Replies(own.max_reply_bytes, str(database.parent)), Deliveries()
    gate = Middleware(Gate, replies=replies, monitor=Monitor(), deliveries=deliveries)
    requests = Middleware(RunRequests, deliveries=deliveries, replies=replies)
    page = [Middleware(one_origin, origin=own.allow_origin)] if own.allow_origin else []
    try:
        if given.host not in HOSTS:
            raise ValueError(
                f"--host {given.host}: give 0.0.0.0 for all interfaces or 127.0.0.1 for this "
                "machine only; restrict other interfaces in the firewall"
            )
        if not re.fullmatch(r"(https?://[^/*\s]+)?", own.allow_origin):
            raise ValueError(f"--allow-origin {own.allow_origin}: give one as https://example.org")
        run_superlink([*page, Middleware(FleetApiOnly), gate, requests])
    except ValueError as error:
        sys.exit(f"superlink: {error}")
    except DatabaseError as error:
        sys.exit(f"superlink: {database}: {error.orig}; free some space, or put back a copy of it")


if __name__ == "__main__":
    main()
