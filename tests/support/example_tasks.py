"""The tasks of docs/example-tasks.md as files."""

import shutil

from tests.support.documents import ROOT, examples

EXAMPLES = examples(ROOT / "docs" / "example-tasks.md")
NAMES = [name.removesuffix("_task.py") for name in EXAMPLES]
APPS = ROOT / "tests" / "apps"


def write(folder):
    """Write the tasks, and the app in the form of Flower's quickstart that one of them imports."""
    for file, content in EXAMPLES.items():
        (folder / file).write_text(content)
    app = shutil.copytree(APPS / "pytorch" / "pytorchexample", folder / "pytorchexample")
    shutil.copy(APPS / "shared.py", app)
    return folder
