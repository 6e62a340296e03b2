import io

from rich.console import Console

from fedavg_app import progress
from fedavg_app.history import RoundRecord
from fedavg_app.progress import RoundProgress


def record(number, **values):
    return RoundRecord(number, bytes_down=1_000_000, bytes_up=500_000, **values)


def show(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=terminal, width=80 if terminal else 160, soft_wrap=not terminal
    )
    with RoundProgress(10, console) as display:
        display.update(RoundRecord(0, accuracy=0.1, test_loss=2.3))
        display.update(record(1, accuracy=0.5, test_loss=1.25, train_loss=1.5))
        display.update(record(2, accuracy=0.4, test_loss=1.1, rejected={5: "NaN"}))
    return stream.getvalue()


def test_plain_lines_say_round_accuracy_loss_bytes_and_time_left(monkeypatch):
    lines = show(False, monkeypatch).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("round  0/10  accuracy 0.1000")
    assert "accuracy 0.5000 (best 0.5000)  loss 1.2500  train loss 1.5000  sent 1.5 MB" in lines[1]
    assert "accuracy 0.4000 (best 0.5000)" in lines[2]
    assert "sent 3.0 MB  rejected 1" in lines[2]
    assert "left 0:0" in lines[2]
    assert "\x1b" not in "".join(lines)


def test_a_terminal_gets_one_live_line(monkeypatch):
    shown = show(True, monkeypatch)
    assert "\x1b" in shown
    assert "round 2/10" in shown
    assert "accuracy 0.4000  loss 1.1000  sent 3.0 MB  rejected 1 left" in shown


def test_plain_lines_are_rationed_but_the_last_round_shows():
    stream = io.StringIO()
    with RoundProgress(100, Console(file=stream, width=160, soft_wrap=True)) as display:
        for number in range(101):
            display.update(record(number, accuracy=0.5))
    lines = stream.getvalue().splitlines()
    assert len(lines) < 10
    assert lines[-1].startswith("round 100/100")
