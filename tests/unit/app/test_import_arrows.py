"""Who imports what: packages point one way, and one file of the app knows Flower's insides."""

import ast

import pytest

from tests.support.documents import ROOT

PACKAGES = ("deployment", "fedavg_app", "paper", "strategies", "tasks")
# The modules that Flower's reference documents.
DOCUMENTED = {
    "flwr", "flwr.app", "flwr.client", "flwr.clientapp", "flwr.clientapp.mod",
    "flwr.clientapp.typing", "flwr.serverapp", "flwr.serverapp.strategy", "flwr.simulation",
}  # fmt: skip
# What may know more of Flower; of the app only this file.
KNOWS_FLOWER = ("deployment.", "fedavg_app.flower_internals")
# The app's parts: each imports from its own line and from those below only.
LAYERS = (
    {"cli"},
    {"sweep"},
    {"ray_engine", "central_sgd"},
    {"server_app", "client_app"},
    {"server", "callbacks", "client", "partitioning", "flower_internals", "packed_content",
     "plugins", "training_plan", "optimizer_choice"},
    {"links", "virtual_clock"},
    {"results"},
    {"client_settings"},
    {"config"},
    {"budget"},
    {"errors"},
)  # fmt: skip


def imports(package):
    """Return pairs of a module of the package and a module that it imports, anywhere in it."""
    found = set()
    for path in (ROOT / package).rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {(name, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # The strategies are installed under two names.
                assert (node.level > 0) == _is_own(node, package), f"{name}: {ast.unparse(node)}"
                found.add((name, node.module if node.level == 0 else package))
    assert found, package
    return found


def _is_own(node, package):
    """Return whether an import must be relative: of the strategies, within them."""
    return package == "strategies" and (node.level > 0 or top(node.module) == "strategies")


def top(module):
    return module.partition(".")[0]


def layer(module):
    """Return the position of a module of the app in `LAYERS`."""
    (position,) = (i for i, parts in enumerate(LAYERS) if module.split(".")[1] in parts)
    return position


@pytest.mark.parametrize("package", PACKAGES)
def test_only_the_named_files_import_what_flower_does_not_document(package):
    assert not {
        (module, imported)
        for module, imported in imports(package)
        if top(imported) == "flwr" and imported not in DOCUMENTED
        if not module.startswith(KNOWS_FLOWER)
    }


@pytest.mark.parametrize("package", ["deployment", "strategies", "tasks", "fedavg_app"])
def test_package_imports_no_other_of_ours_but_the_app_what_is_below_it(package):
    below = {"strategies", "tasks"} if package == "fedavg_app" else set()
    others = {*PACKAGES, "benchmarks", "simulation", "tests"} - {package} - below
    assert not {pair for pair in imports(package) if top(pair[1]) in others}


def test_no_part_of_the_app_imports_a_higher_layer():
    assert not {
        (module, imported)
        for module, imported in imports("fedavg_app")
        if imported.startswith("fedavg_app.") and module != "fedavg_app.__init__"
        if layer(imported) < layer(module)
    }
