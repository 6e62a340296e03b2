"""`doctor`, without the start of Ray."""

import sys

import pytest

from fedavg_app.cli import doctor
from fedavg_app.cli.main import main


@pytest.fixture
def shown(monkeypatch, capsys):
    """Return what runs `doctor` and returns its lines and its exit status."""
    monkeypatch.setattr(doctor, "_ray", lambda: iter(()))

    def run():
        monkeypatch.setattr(sys, "argv", ["fedavg", "doctor"])
        status = main()
        return capsys.readouterr().out.splitlines(), status

    return run


def test_what_is_there_is_named_with_its_version(shown):
    lines, status = shown()
    assert status == 0
    assert any(line.startswith("ok") and "flwr 1." in line for line in lines)
    assert any("MNIST" in line for line in lines)


def test_missing_package_is_named_with_its_fix(shown, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    lines, status = shown()
    assert status == 1
    (line,) = [line for line in lines if line.startswith("missing")]
    fix = "run: pip install 'fedavg-app[simulation]'"
    assert " ".join(line.split()) == f"missing no-such-package; {fix}"
