"""The example in JavaScript trains, signs and writes records as the rest of the project does."""

import base64
import http.server
import json
import subprocess
import threading

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

import strategies
import tasks
from fedavg_app.flower_internals import content_from_bytes, content_to_bytes
from strategies.compression.ternary import Ternary
from strategies.compression.vector_layout import Layout
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tasks.training.local_training import TaskClient
from tasks.training.random_streams import torch_generator
from tests.support.documents import ROOT
from tests.support.idx_files import encode
from tests.support.javascript import as_text, as_vector, needs_node, node, value, vector_text
from tests.support.rounding import assert_same_change
from tests.support.task_clients import fit

pytestmark = needs_node


@pytest.mark.parametrize(
    ("task", "work"),
    [
        ("mnist-logistic", {"local-epochs": 3, "batch-size": 8}),
        ("mnist-logistic", {"local-epochs": 2, "batch-size": 0}),
        ("mnist-2nn", {"local-steps": 7, "batch-size": 10}),
    ],
)
def test_training_is_that_of_torch(task, work):
    task, cpu = tasks.load(task), torch.device("cpu")
    split = MNIST.load(DataOptions("embedded")).train.part(slice(0, None, 109))
    network = task.networks(3, cpu)
    client = TaskClient(task, network, task.examples(split, cpu), partition=2)
    start = [array.numpy().copy() for array in task.initial_model(3).state_dict().values()]
    config = {"learning-rate": 0.05, "seed": 3, "server-round": 4, **work}
    trained, _, metrics = fit(client, start, config)
    order = torch.randperm(len(split), generator=torch_generator(3, "batches", 2, 4)).tolist()
    (answer,) = node(("train", {
        "shapes": [array.shape for array in start], "settings": config, "order": order,
        "model": vector_text(np.concatenate([array.ravel() for array in start])),
        "images": as_text(encode(split.inputs)), "labels": as_text(encode(split.targets)),
    }))  # fmt: skip
    found = np.split(as_vector(value(answer)["vector"]), np.cumsum([a.size for a in start])[:-1])
    arrays = [part.reshape(array.shape) for part, array in zip(found, start, strict=True)]
    assert_same_change(arrays, trained, start)
    assert value(answer)["loss"] == pytest.approx(metrics["train-loss"], rel=1e-5)


@pytest.mark.parametrize("p", [1 / 400, 0.04, 1.0])
@pytest.mark.parametrize("scope", ["tensor", "model"])
def test_update_of_a_network_has_the_same_bytes(p, scope):
    shapes = {"1.weight": (200, 784), "1.bias": (200,), "3.weight": (10, 200), "3.bias": (10,)}
    layout = Layout(tuple(shapes), tuple(shapes.values()))
    rng = np.random.default_rng(8)
    update = rng.normal(size=layout.size).astype(np.float32) ** 3
    update[rng.integers(layout.size, size=9000)] = rng.choice([0, 2, -2], size=9000)
    form = {"sizes": list(layout.blocks(scope)), "p": p}
    (answer,) = node(("encodeTernary", {"update": vector_text(update), "form": form}))
    assert base64.b64decode(value(answer)) == Ternary(p, scope).encode(update.copy(), layout, rng)


def test_contents_are_read_and_written_as_flower_does():
    settings = {
        "rate": 0.25,
        "steps": 300,
        "below": -7,
        "flag": True,
        "text": "naïve",
        "raw": b"\0\xff",
    }
    array = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 3
    content = RecordDict({
        "config": ConfigRecord({**settings, "raw": b"\0\xff"}),
        "metrics": MetricRecord({"loss": 0.5, "count": 2**40}),
        "arrays": ArrayRecord({"w": Array(array)}),
    })  # fmt: skip
    npy = content["arrays"]["w"].data
    (answer,) = node(("content", {
        "read": as_text(content_to_bytes(content)), "npy": {"shape": [3, 4], "data": as_text(npy)},
        "write": {"count": 2**33, "name": "é", "data": as_text(b"\1\0"), "loss": 1.0},
    }))  # fmt: skip
    found = value(answer)["found"]
    assert found["config"] == {**settings, "raw": as_text(b"\0\xff")}
    assert found["metrics"] == {"loss": 0.5, "count": 2**40}
    described = {
        "dtype": "float32",
        "shape": [3, 4],
        "stype": "numpy.ndarray",
        "data": as_text(npy),
    }
    assert found["arrays"] == {"w": described}
    written = content_from_bytes(base64.b64decode(value(answer)["written"]))
    assert written == RecordDict({
        "settings": ConfigRecord({"count": 2**33, "name": "é", "data": b"\1\0"}),
        "metrics": MetricRecord({"count": -(2**33), "loss": 1.0}),
        "arrays": ArrayRecord({"w": Array(array)}),
    })  # fmt: skip


def test_keys_and_signatures_are_those_of_ssh_and_flower(tmp_path):
    path = tmp_path / "key"
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-m", "PKCS8", "-C", "nobody", "-f"]
    subprocess.run([*words, str(path), "-N", ""], check=True)
    times = [f"2026-01-01T00:00:{second:02}.5+00:00" for second in range(60)]
    (answer,) = node(("keys", {"pem": path.read_text(), "times": times}))
    assert path.with_suffix(".pub").read_text() == f"{value(answer)['line']} nobody\n"
    key = bytes_to_public_key(value(answer)["pem"].encode())
    for time, signature in zip(times, value(answer)["signatures"], strict=True):
        assert verify_signature(key, time.encode(), base64.b64decode(signature))


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("sparsity-up = 0.04, sparsity-down = 1", {"sparsity_up": 0.04, "sparsity_down": 1}),
        ("scope = 'model', sparsity-up = 1e-5", {"scope": "model", "sparsity_up": 1e-5}),
    ],
)
def test_codec_of_a_run_is_ours(text, arguments):
    (answer,) = node(("codecOf", {"strategy": "stc", "strategy-args": text}))
    assert value(answer) == str(strategies.build("stc", arguments).strategy.codec)


@pytest.mark.parametrize("arguments", [{"feedback_decay": 0.9}, {"feedback": "none"}])
def test_codec_that_the_client_does_not_know_is_refused(arguments):
    ternary = {"uplink": "ternary", "downlink": "ternary"}
    codec = str(strategies.build("compressed", ternary | arguments).strategy.codec)
    message = {"client": 0, "head": "", "trained": "", "round": 1}
    (answer,) = node(("clients", {"codec": codec, "sizes": [1], "messages": [message]}))
    assert f"this client knows sparse ternary compression alone, not {codec}" in answer["error"]


def test_request_without_an_answer_is_sent_again_and_a_refused_one_is_not():
    """A connection that is closed, status 503, an answer, status 403."""
    asked = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append((self.path, body))
            if len(asked) == 1:
                self.close_connection = True  # without a word
                return
            status, answer = [(503, b"locked"), (200, b"\x08\x07"), (403, b"no")][len(asked) - 2]
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = f"""
        import {{ Device, makeKeys, publicPem }} from "{ROOT}/examples/javascript/flower.mjs";
        const keys = await makeKeys(), told = [];
        const address = "http://127.0.0.1:{server.server_port}";
        const device = new Device(address, keys, (line) => told.push(line));
        device.publicKey = await publicPem(keys);
        const answer = Number((await device.call("pull-object", new Uint8Array([1, 2])))[1][0]);
        const refused = await device.call("push-object").catch((error) => error.message);
        console.log(JSON.stringify({{ answer, told, refused }}));
    """
    words = ["node", "--input-type=module", "-e", script]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    server.shutdown()
    said = json.loads(done.stdout)
    assert asked == [("/v1/fleet/pull-object", b"\1\2")] * 3 + [("/v1/fleet/push-object", b"")]
    assert said["answer"] == 7
    assert said["told"][0].startswith("pull-object: fetch failed")
    assert said["told"][1:] == ["pull-object: HTTP 503 locked"]
    assert said["refused"] == "push-object: HTTP 403 no"
