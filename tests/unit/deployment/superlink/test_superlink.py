"""The SuperLink's launcher starts nothing unless its middleware sees every request."""

import sqlite3
import sys
from contextlib import closing
from importlib import import_module

import pytest
from flwr.supercore import sql_mixin
from flwr.superlink import extensions

from deployment.superlink.__main__ import main
from deployment.superlink.internals import _set_pragmas
from tests.support.documents import ROOT
from tests.support.processes import ran, succeed

LAUNCH = """
import atexit, runpy, sys
atexit.register(lambda: print(*sys.modules))
runpy.run_module("deployment.superlink", run_name="__main__")
"""


@pytest.fixture
def refusal(monkeypatch):
    """Return a function that returns the line with which the launcher, in this process, exits."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "")  # what it changes is changed back
    monkeypatch.setattr(extensions, "get_middleware", extensions.get_middleware)
    flowers = import_module("flwr.superlink.cli.flower_superlink")
    monkeypatch.setattr(flowers, "flower_superlink", lambda: pytest.fail("it is started"))

    def refused(*words):
        monkeypatch.setattr(sys, "argv", ["superlink", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code.startswith("superlink: ")
        assert "\n" not in ended.value.code
        return ended.value.code

    return refused


@pytest.mark.parametrize(
    "host", ["192.0.2.10", "--host=192.0.2.10", "superlink.example.org", "fe80::1"]
)
def test_host_that_the_own_processes_could_not_use_is_one_line(refusal, host):
    reason = refusal(*([host] if "=" in host else ["--host", host]))
    assert reason.startswith("superlink: --host ")
    assert "0.0.0.0" in reason


def test_flower_that_lacks_the_place_of_middleware_is_not_started(refusal, monkeypatch):
    monkeypatch.delattr(extensions, "get_middleware")
    lacks = "lacks a part (flwr.superlink.extensions.get_middleware)"
    assert lacks in refusal("--insecure")


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("superlink.main._get_middleware", lambda: [None], "does not take the middleware"),
        ("supercore.sql_mixin.SQLITE_PRAGMAS", (), "has no SQLITE_PRAGMAS with a busy_timeout"),
    ],
)
def test_flower_that_does_not_take_what_the_launcher_gives_it_is_not_started(
    refusal, monkeypatch, part, value, reason
):
    monkeypatch.setattr(f"flwr.{part}", value)
    assert reason in refusal("--insecure")


@pytest.mark.parametrize("origin", ["*", "https://page.example.org/", "page.example.org"])
def test_what_is_no_origin_is_one_line(refusal, origin):
    assert refusal("--allow-origin", origin).startswith(f"superlink: --allow-origin {origin}: ")


def test_database_has_the_launchers_pragmas(monkeypatch, tmp_path):
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
    printed = succeed([sys.executable, "-c", LAUNCH, "--help"], cwd=ROOT).stdout
    assert "--enable-supernode-auth" in printed
    assert "flwr.superlink.main" in printed.split()
    assert "torch" not in printed.split()


def test_damaged_database_is_one_line_that_names_it(tmp_path):
    database = tmp_path / "superlink.db"
    database.write_bytes(bytes(range(256)) * 100)
    options = ["--insecure", "--database", str(database), "--port", "1"]
    done = ran([sys.executable, "-m", "deployment.superlink", *options], cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"superlink: {database}: file is not a database; free some space, or put back a copy of it"
    )
    assert "Traceback" not in done.stdout + done.stderr
