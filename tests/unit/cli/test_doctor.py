"""`doctor`, without the start of Ray."""

import pytest

from fedavg_app.cli import doctor


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch):
    monkeypatch.setattr(doctor, "_ray", lambda: iter(()))


def test_installed_packages_are_listed_with_their_versions(command_line):
    status, shown, _ = command_line("doctor")
    assert status == 0
    lines = shown.splitlines()
    assert any(line.startswith("ok") and "flwr 1." in line for line in lines)
    assert any("MNIST" in line for line in lines)


def test_missing_package_is_named_with_its_fix(command_line, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    status, shown, _ = command_line("doctor")
    assert status == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("missing")]
    fix = "run: pip install 'fedavg-app[simulation]'"
    assert " ".join(line.split()) == f"missing no-such-package; {fix}"
