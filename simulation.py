"""Federated learning simulations from Python, without a SuperLink: see `simulation.py --help`.

The same program as `fedavg`, for a checkout that is not installed.
"""

import sys

try:
    from fedavg_app.cli.main import run_process
except ModuleNotFoundError as error:
    sys.exit(f"error: {error.name} is missing; run: pip install -e '.[simulation]'")

if __name__ == "__main__":
    run_process()
