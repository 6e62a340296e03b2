"""Headless Chromium, driven over a pipe by its DevTools protocol."""

import fcntl
import itertools
import json
import os
import shutil
import subprocess

import pytest

from tests.support.processes import end

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",
]  # fmt: skip


class Page:
    """A page in a Chromium of its own; a context manager.

    Args:
        url: What it opens.
        profile: The folder that keeps what the browser stores.
        trusted: The SHA-256, in base64, of the public key of a certificate to trust.
    """

    def __init__(self, url, profile, trusted=""):
        self._numbers, self._session, self._rest = itertools.count(1), {}, b""
        told, self._to = os.pipe()
        self._answers, answers = os.pipe()
        # Chromium reads commands from the file descriptor 3 and answers to 4.
        ends = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (told, answers)]
        words = [PROGRAM, *FLAGS, f"--user-data-dir={profile}"]
        words += [f"--ignore-certificate-errors-spki-list={trusted}", "about:blank"]
        shell = ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "-"]
        self._process = subprocess.Popen(
            [*shell, *words], pass_fds=ends, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for descriptor in (told, answers, *ends):
            os.close(descriptor)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._call("Page.navigate", url=url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end([self._process])
        os.close(self._answers)
        os.close(self._to)

    def value(self, expression):
        """Return the value of an expression, or of its promise; None while the page loads."""
        found = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found.get("result", {}).get("value")

    def text(self, element):
        """Return the text of the element with that id."""
        return self.value(f"document.getElementById({element!r})?.textContent")

    def _call(self, method, **params):
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:  # past the events
            answer = json.loads(self._read())
            if answer.get("id") == number:
                return answer.get("result", {})

    def _read(self):
        while b"\0" not in self._rest:
            more = os.read(self._answers, 2**16)
            assert more, "Chromium has ended"
            self._rest += more
        found, _, self._rest = self._rest.partition(b"\0")
        return found
