"""The SuperLink's launcher starts nothing unless its middleware sees every request."""

import sqlite3
import sys
from contextlib import closing

import pytest

from tests.support.documents import ROOT
from tests.support.processes import ran

LAUNCH = """
{}
import runpy
runpy.run_module("deployment.superlink", run_name="__main__")
"""


def launch(*words, before="pass"):
    """Run the launcher after some Python; return its exit status and what it printed."""
    done = ran([sys.executable, "-c", LAUNCH.format(before), *words], cwd=ROOT)
    return done.returncode, (done.stdout + done.stderr).strip()


@pytest.mark.parametrize(
    "host", ["192.0.2.10", "--host=192.0.2.10", "superlink.example.org", "fe80::1"]
)
def test_host_that_the_own_processes_could_not_use_is_one_line(host):
    status, printed = launch(*([host] if "=" in host else ["--host", host]))
    assert status == 1
    assert printed.startswith("superlink: --host ")
    assert "0.0.0.0" in printed
    assert "\n" not in printed


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (
            "import flwr.superlink.extensions as e; del e.get_middleware",
            "lacks a part (flwr.superlink.extensions.get_middleware)",
        ),
        pytest.param(
            "import flwr.superlink.main as m; m._get_middleware = lambda: [None]",
            "does not take the middleware",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import flwr.supercore.sql_mixin as m; m.SQLITE_PRAGMAS = ()",
            "has no SQLITE_PRAGMAS with a busy_timeout",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_flower_that_does_not_take_what_the_launcher_gives_it_is_not_started(before, reason):
    status, printed = launch("--insecure", before=before)
    assert status == 1
    assert printed.startswith("superlink: ")
    assert reason in printed
    assert "\n" not in printed


def test_database_has_the_launchers_pragmas(monkeypatch, tmp_path):
    from flwr.supercore import sql_mixin

    from deployment.superlink.internals import _set_pragmas

    pragmas = sql_mixin.SQLITE_PRAGMAS
    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", pragmas)
    _set_pragmas()
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        sql_mixin._set_sqlite_pragmas(connection, None)
        names = [name for name, _ in sql_mixin.SQLITE_PRAGMAS]
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
    assert found["busy_timeout"] == 60_000
    assert found["cache_size"] == -8000
    assert found["journal_size_limit"] == 2**26
    assert found["journal_mode"] == dict(pragmas)["journal_mode"].lower()


def test_options_are_those_of_flower_and_no_torch_is_loaded():
    modules = "import atexit, sys; atexit.register(lambda: print(*sys.modules))"
    status, printed = launch("--help", before=modules)
    assert status == 0
    assert "--enable-supernode-auth" in printed
    assert "flwr.superlink.main" in printed.split()
    assert "torch" not in printed.split()


def test_damaged_database_is_one_line_that_names_it(tmp_path):
    database = tmp_path / "superlink.db"
    database.write_bytes(bytes(range(256)) * 100)
    status, printed = launch("--insecure", "--database", str(database), "--port", "1")
    assert status == 1
    assert printed.splitlines()[-1] == (
        f"superlink: {database}: file is not a database; free some space, or put back a copy of it"
    )
    assert "Traceback" not in printed
