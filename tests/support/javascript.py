"""Calls of the example in JavaScript, each a name and an argument, in one process of Node.js."""

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest

from tests.support.documents import ROOT

SCRIPT = ROOT / "tests" / "other_language" / "decode.mjs"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


def node(*calls):
    """Return what the script answers to each call, which is a name and an argument."""
    done = subprocess.run(
        ["node", str(SCRIPT)], input=json.dumps(calls), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def value(answer):
    assert "value" in answer, answer
    return answer["value"]


def as_text(data):
    return base64.b64encode(data).decode()


def vector_text(vector):
    return as_text(np.asarray(vector, "<f4").tobytes())


def as_vector(text):
    return np.frombuffer(base64.b64decode(text), "<f4")
