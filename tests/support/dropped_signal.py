"""A signal whose exception Python drops."""

import signal


class Interrupted:
    """Gets a signal while it is destroyed."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        signal.raise_signal(self.number)
