"""A run's app is stored whole or not at all: Flower takes any folder of its name for the app."""

import errno
import os
import shutil
import sys
from hashlib import sha256

import pytest

from deployment.supernode.client_main import install_atomically
from tests.support.documents import ROOT
from tests.support.processes import ran

CONTENT = b"an app"
NAME = f"a.b.1.{sha256(CONTENT).hexdigest()[:8]}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    return tmp_path


def install(content, install_dir, skip_prompt):
    """Store two files, as Flower's function does."""
    app = install_dir / "apps" / NAME
    app.mkdir(parents=True)
    for name in ("one", "two"):
        (app / name).write_bytes(content)
    return app


def full(content, install_dir, skip_prompt):
    """Store a part, as on a full disk; `shutil.copytree` raises a list."""
    (install_dir / "apps" / NAME).mkdir(parents=True)
    raise shutil.Error([("from", "to", str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))])


def test_app_is_where_flower_looks_for_it_and_is_stored_once(home):
    for fill in (install, full):  # the second is not called
        install_atomically(fill)(CONTENT, skip_prompt=True)
        assert [path.name for path in (home / "apps").iterdir()] == [NAME]
        assert {path.name for path in (home / "apps" / NAME).iterdir()} == {"one", "two"}


def test_full_disk_is_one_line_and_the_app_is_stored_once_there_is_space(home):
    with pytest.raises(OSError, match=r"cannot be stored in .*No space left on device") as why:
        install_atomically(full)(CONTENT, skip_prompt=True)
    assert "\n" not in str(why.value)
    assert not list((home / "apps").iterdir())
    install_atomically(install)(CONTENT, skip_prompt=True)
    assert (home / "apps" / NAME / "two").exists()


KILLED = """
import os, sys
from deployment.supernode.client_main import install_atomically
from tests.unit.deployment.supernode.test_stored_app import CONTENT

def killed(content, install_dir, skip_prompt):
    (install_dir / "apps" / "part").mkdir(parents=True)
    os.kill(os.getpid(), 9)

install_atomically(killed)(CONTENT, skip_prompt=True)
"""


def test_client_that_is_killed_leaves_no_part_that_counts(home):
    assert ran([sys.executable, "-c", KILLED], cwd=ROOT).returncode == -9
    assert not (home / "apps" / NAME).exists()
    install_atomically(install)(CONTENT, skip_prompt=True)
    assert (home / "apps" / NAME / "two").exists()
