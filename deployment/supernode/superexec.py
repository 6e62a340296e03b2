"""The SuperExec of a SuperNode with warm clients: started by `deployment.supernode`.

    python -m deployment.supernode.superexec HOST:PORT PARENT

It reads the secret that it shares with the SuperNode from its standard input.
"""

import sys

from deployment.supernode import internals
from deployment.supernode.executor import ForkingExecutor
from deployment.supernode.process_tree import end_with_parent


def main() -> None:
    """Run it until its SuperNode ends."""
    end_with_parent()
    address, parent = sys.argv[1:]
    secret = sys.stdin.buffer.read()
    executor = ForkingExecutor()
    executor.warm_up()
    internals.run_superexec(executor, address, secret, int(parent))


if __name__ == "__main__":
    main()
