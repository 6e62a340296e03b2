"""Foreign folders `tasks` and `strategies` in the working directory, in processes of their own."""

import os
import sys

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    """A working directory with packages of these names; importing one says so."""
    for name in ("tasks", "strategies"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"print('the foreign {name}')")
    (tmp_path / "tasks" / "mine.py").write_text("")
    return tmp_path


def python(folder, *arguments):
    """Run Python in the folder, which is first on its path but for a script's."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    return ran([sys.executable, *arguments], cwd=folder, env=environment)


@pytest.mark.parametrize("program", [[str(ROOT / "simulation.py"), "run"], ["-c"]])
def test_run_in_such_a_folder_trains(folder, program):
    """Ray puts the working directory first on the path of its workers."""
    if program == ["-c"]:
        code = "from fedavg_app import RunConfig, simulate; simulate(RunConfig(task="
        code += "'mnist-logistic', data_source='embedded', num_clients=4, num_server_rounds=1))"
        program = [*program, code]
    else:
        keys = ["--task=mnist-logistic", "--data-source=embedded", "--num-clients=4"]
        program = [*program, *keys, "--num-server-rounds=1"]
    done = python(folder, *program)
    assert done.returncode == 0, done.stderr
    assert "done: best accuracy" in done.stdout
    assert "died" not in done.stderr


def test_module_of_such_a_folder_is_refused_with_the_fix(folder):
    done = python(folder, str(ROOT / "simulation.py"), "run", "--task=tasks.mine:TASK")
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("error: task = 'tasks.mine:TASK': there is no module 'tasks.mine': ")
    assert f"'tasks' is {ROOT}/tasks; give a folder of yours another name" in line


def test_packages_follow_another_copy_of_the_app(tmp_path):
    """A device forgets the installed app for that of a run, which is on the path then."""
    for name in ("fedavg_app", "strategies", "tasks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    code = """
import sys
import fedavg_app
del sys.modules["fedavg_app"]
sys.path.insert(0, sys.argv[1])
import fedavg_app, strategies, tasks
print(fedavg_app.__file__, strategies.__file__, tasks.__file__)
"""
    done = python(ROOT, "-c", code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    names = ("fedavg_app", "strategies", "tasks")
    assert done.stdout.split() == [str(tmp_path / name / "__init__.py") for name in names]
