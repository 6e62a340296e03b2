"""What the launchers need of Flower is looked for, whatever the version."""

from importlib import import_module
from importlib.metadata import version

import pytest

from deployment.flower_parts import SUPERLINK, SUPERNODE, why_unfit

FIX = "run: pip install 'flwr>=1.41,<1.43'"


@pytest.mark.parametrize("parts", [SUPERLINK, SUPERNODE], ids=["superlink", "supernode"])
def test_installed_flower_has_all(parts):
    assert why_unfit(parts) is None


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("flwr.supernode.start_client_internal", "_pull_and_store_message"),
        ("flwr.supernode.servicer.runtime.runtime_handlers", "push_messages"),
    ],
)
def test_missing_part_is_named_with_the_fix(monkeypatch, module, name):
    monkeypatch.delattr(import_module(module), name)
    expected = f"flwr {version('flwr')} lacks a part ({module}.{name}); {FIX}"
    assert why_unfit(SUPERNODE) == expected


def test_missing_argument_is_named(monkeypatch):
    module = import_module("flwr.supernode.runtime.run_clientapp")
    monkeypatch.setattr(module, "install_from_fab", lambda content, install_dir: None)
    lacks = f"{module.__name__}.install_from_fab(skip_prompt=...)"
    assert f"({lacks}); {FIX}" in why_unfit(SUPERNODE)
