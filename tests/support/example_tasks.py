"""The example tasks of the documents as files, and the strategies that train them."""

import shutil

from tests.support.documents import ROOT, examples

PAGES = ("example-tasks.md", "fine-tuning.md", "own-training-loop.md")
EXAMPLES = {
    name: content for page in PAGES for name, content in examples(ROOT / "docs" / page).items()
}
NAMES = [name.removesuffix("_task.py") for name in EXAMPLES if name.endswith("_task.py")]
APPS = ROOT / "tests" / "apps"
STRATEGIES = ["fedavg", "stc", "scaffold", "flwr.serverapp.strategy:FedAdam"]
# They train by loops of their own, which SCAFFOLD cannot correct.
OWN_LOOP = ("gan", "quickstart")
TRAINED = [
    (name, strategy)
    for name in NAMES
    for strategy in STRATEGIES
    if not (name in OWN_LOOP and strategy == "scaffold")
]
WITH_ADAMW = ("labels", "lora")


def write(folder):
    """Write the tasks, and the app that one of them imports."""
    for file, content in EXAMPLES.items():
        (folder / file).write_text(content)
    write_app("pytorch", folder)
    return folder


def write_app(name, folder):
    """Write an app of tests/apps, which know Flower and nothing of this project."""
    package = folder / f"{name}example"
    for part in ("common", name):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(APPS / part, package, ignore=ignored, dirs_exist_ok=True)
    project = (package / "pyproject.toml").read_text().replace("NAME", name)
    (folder / "pyproject.toml").write_text(project)
    return package


def keys_for(strategy, name):
    """Return what a strategy needs: SCAFFOLD is defined for SGD, STC's updates are small."""
    keys = {"strategy": strategy}
    if strategy == "scaffold" and name in WITH_ADAMW:
        keys |= {"optimizer": "sgd", "learning_rate": 0.1}
    if strategy == "stc":
        keys["strategy_args"] = "sparsity-up = 0.5"
    if "FedAdam" in strategy:
        keys["strategy_args"] = "eta = 0.02, tau = 0.001"
    return keys
