"""`doctor`, without the start of Ray, and of Flower's parts, of which a process looks, once."""

from types import SimpleNamespace

import pytest
import torch

from fedavg_app.cli import doctor


@pytest.fixture(autouse=True)
def flower(monkeypatch):
    """Return the look at Flower's parts, which is left out unless it is put back."""
    flower = doctor._flower
    for name in ("_ray", "_flower"):
        monkeypatch.setattr(doctor, name, lambda: iter(()))
    return flower


def test_installed_packages_are_listed_with_their_versions(command_line, monkeypatch, flower):
    monkeypatch.setattr(doctor, "_flower", flower)
    status, shown, _ = command_line("doctor")
    assert status == 0
    lines = shown.splitlines()
    assert any(line.startswith("ok") and "flwr 1." in line for line in lines)
    assert any(line.startswith("ok") and "the SuperLink's gate" in line for line in lines)
    assert any("MNIST" in line for line in lines)


def test_missing_package_is_named_with_its_fix(command_line, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("no-such-package",))
    status, shown, _ = command_line("doctor")
    assert status == 1
    (line,) = [line for line in shown.splitlines() if line.startswith("missing")]
    fix = "run: pip install 'fedavg-app[simulation]'"
    assert " ".join(line.split()) == f"missing no-such-package; {fix}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch uses the GPU that is here")
@pytest.mark.parametrize("found", [True, False])
def test_gpu_that_torch_cannot_use_is_named_with_torchs_build(command_line, monkeypatch, found):
    monkeypatch.setattr(doctor, "Path", lambda _: SimpleNamespace(exists=lambda: found))
    _, shown, _ = command_line("doctor")
    shown = " ".join(shown.split())
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU alone"
    assert f"torch is built for {built}" in shown
    assert ("a GPU is here that torch cannot use" in shown) == found
