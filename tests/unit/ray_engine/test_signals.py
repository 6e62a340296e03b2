import signal
import sys

import pytest

from fedavg_app.ray_engine.signals import Signals
from tests.support.dropped_signal import Interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signal_in_a_destructor_is_raised_again():
    before = signal.getsignal(signal.SIGINT)
    with Signals() as signals:
        signals.check()
        Interrupted(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signals.check()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exit_status_of_a_programs_own_handler_is_kept():
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with Signals() as signals:
            Interrupted(signal.SIGTERM)
            with pytest.raises(SystemExit, match="143"):
                signals.check()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signal_that_nobody_drops_is_raised_at_once():
    with pytest.raises(KeyboardInterrupt), Signals():
        signal.raise_signal(signal.SIGINT)
