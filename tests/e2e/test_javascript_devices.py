"""docs/other-languages.md with real processes: devices in Python, Node.js and a browser."""

import base64
import functools
import hashlib
import http.server
import json
import shutil
import threading

import numpy as np
import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from safetensors.numpy import load_file

import strategies
import tasks
from strategies.rounds.flower_arrays import from_record, to_record
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tasks.training.local_training import TaskClient
from tests.support import idx_files
from tests.support.chromium import PROGRAM, Page, needs_chromium
from tests.support.deployment import Deployment
from tests.support.documents import ROOT
from tests.support.javascript import needs_node
from tests.support.replies import cohort
from tests.support.rounding import assert_same_change
from tests.support.task_clients import fit

pytestmark = [
    pytest.mark.slow,
    needs_node,
    pytest.mark.usefixtures("server_identity"),
]

JAVASCRIPT = ROOT / "examples" / "javascript"
SIZES = (70, 120, 90)
SEED = 5
KEY = ["-q", "-t", "ecdsa", "-b", "384", "-m", "PKCS8"]
STC = {"sparsity_up": 0.04, "sparsity_down": 0.03}


def splits():
    """Return the examples of the devices in Python, in Node.js and in the browser."""
    data, start = MNIST.load(DataOptions("embedded")).train, 0
    rows = np.random.default_rng(2).permutation(len(data))
    for size in SIZES:
        yield data.part(rows[start : start + size])
        start += size


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files in silence."""

    def log_message(self, *_):
        pass


class Site:
    """Serves a folder to browsers on a free port; `origin` is its address."""

    def __init__(self, folder):
        handler = functools.partial(Files, directory=folder)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.port = self._server.server_port
        self.origin = f"http://localhost:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()


class WithPage(Deployment):
    """A deployment whose gate lets one page's browsers in."""

    def __init__(self, folder, origin):
        super().__init__(folder, 0)
        self._origin = origin

    def start_superlink(self):
        words = [*self.command("deployment/superlink.sh"), "--port", str(self.port)]
        self.start("superlink", [*words, "--allow-origin", self._origin])
        self.wait_for(self.listening)

    @property
    def address(self):
        return f"https://localhost:{self.port}"

    def register(self, key):
        self.run(["flwr", "supernode", "register", f"{key}.pub", "deployment"])

    def fingerprint(self):
        """Return the SHA-256 of the certificate's key, by which the browser is told to trust it."""
        path = self.folder / "certificates" / "server.pem"
        key = x509.load_pem_x509_certificates(path.read_bytes())[0].public_key()
        data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(data).digest()).decode()

    def link(self, site, number, host="localhost"):
        """Return the link that makes the page a device at once."""
        files = "&".join(f"{name}=data/{name}" for name in ("images", "labels"))
        page = f"http://{host}:{site.port}/index.html"
        return f"{page}#address={self.address}&number={number}&{files}"


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """Yield a deployment with its devices, the site, and the page; None without Chromium."""
    folder = tmp_path_factory.mktemp("javascript")
    served = folder / "site"
    shutil.copytree(JAVASCRIPT, served)
    own, in_node, in_browser = splits()
    archive = folder / "archive"
    for place in (archive, served / "data"):
        place.mkdir()
    np.savez_compressed(archive / "train.npz", inputs=own.inputs, targets=own.targets)
    for split, place in ((in_node, folder), (in_browser, served / "data")):
        for name, array in (("images", split.inputs), ("labels", split.targets)):
            (place / name).write_bytes(idx_files.encode(array))
    with Site(served) as site, WithPage(folder / "deployment", site.origin) as deployment:
        deployment.add_node(0, f'partition-id=0 data-dir="{archive}"')
        deployment.run(["ssh-keygen", *KEY, "-N", "", "-f", "device-1"])
        deployment.register("device-1")
        certificate = deployment.folder / "certificates" / "ca.crt"
        deployment.environment["NODE_EXTRA_CA_CERTS"] = str(certificate)
        files = [str(folder / name) for name in ("images", "labels")]
        program = ["node", str(JAVASCRIPT / "node.mjs")]
        deployment.start("node", [*program, deployment.address, "device-1", "1", *files])
        if PROGRAM is None:
            deployment.wait_for(lambda: deployment.online() == 2)
            yield deployment, site, None
            return
        with Page(deployment.link(site, 2), folder / "profile", deployment.fingerprint()) as page:
            deployment.wait_for(lambda: "ecdsa" in (page.text("key") or ""))
            (deployment.folder / "phone.pub").write_text(page.text("key"))
            # It asks until its key is registered.
            deployment.wait_for(lambda: "activate-node: HTTP 412" in page.text("log"))
            deployment.register("phone")
            deployment.wait_for(lambda: deployment.online() == 3)
            yield deployment, site, page


def in_one_process(name, arguments, splits, rounds, config):
    """Return what our own clients and server make of the initial model, by the arrays' names."""
    task, cpu = tasks.load("mnist-logistic"), torch.device("cpu")
    network = task.networks(SEED, cpu)
    clients = [TaskClient(task, network, task.examples(split, cpu)) for split in splits]
    runner, mod = strategies.build(name, arguments), strategies.client_mod(name, arguments)
    nodes = range(10, 10 + len(clients))
    contexts = [Context(1, node, {}, RecordDict(), {}) for node in nodes]
    model = to_record(initial())

    def train(message, context):
        arrays, told = from_record(message.content["arrays"]), dict(message.content["config"])
        client = clients[context.node_id - 10]
        trained, count, _ = fit(client, list(arrays.values()), told)
        found = to_record(dict(zip(arrays, trained, strict=True)))
        content = {"arrays": found, "metrics": MetricRecord({"num-examples": count})}
        return Message(RecordDict(content), reply_to=message)

    for number in range(1, rounds + 1):
        told = ConfigRecord({"learning-rate": 0.04, "seed": SEED, **config})
        sent = runner.configure_train(number, model, told, cohort(*nodes))
        pairs = zip(sent, contexts, strict=True)
        replies = [mod(*pair, train) if mod else train(*pair) for pair in pairs]
        model = runner.finish_round(replies).model
    return from_record(model)


def initial():
    model = tasks.load("mnist-logistic").initial_model(SEED)
    return {name: array.numpy().copy() for name, array in model.state_dict().items()}


# With all examples a step their order does not count, but for rounding.
FEDAVG = {"local-epochs": 4, "batch-size": 0}
ONE_STEP = {"local-steps": 1, "batch-size": 0}


@pytest.mark.parametrize(
    ("name", "arguments", "rounds", "work"),
    [("fedavg", {}, 2, FEDAVG), ("stc", STC, 8, ONE_STEP)],
)
def test_devices_in_three_languages_train_one_model(
    started, tmp_path, name, arguments, rounds, work
):
    deployment, _, page = started
    devices = 3 if page else 2
    text = ", ".join(f"{key.replace('_', '-')} = {value}" for key, value in arguments.items())
    keys = {"strategy": name, "strategy-args": text, "num-clients": devices, "seed": SEED, **work}
    folder = deployment.train(tmp_path / "runs", **{"num-server-rounds": rounds, **keys})
    lines = (folder / "history.jsonl").read_text().splitlines()
    history = [json.loads(line) for line in lines][1:]
    assert [line["participants"] for line in history] == [devices] * rounds
    assert not any(line["rejected"] for line in history)
    own = json.loads((folder / "summary.json").read_text())["own-data"]
    assert [own[str(number)]["examples"] for number in range(devices)] == list(SIZES[:devices])
    if name == "stc":  # all have followed the model: none was sent it again
        assert max(line["bytes_down"] for line in history[1:]) < history[0]["bytes_down"] / 20
    trained = load_file(folder / "model.safetensors")
    expected = in_one_process(name, arguments, list(splits())[:devices], rounds, work)
    start = initial()
    found = [trained[key] for key in expected]
    assert_same_change(found, expected.values(), [start[key] for key in expected])


@needs_chromium
def test_page_of_another_origin_is_kept_out(started, tmp_path):
    deployment, site, _ = started
    link = deployment.link(site, 2, host="127.0.0.1")
    with Page(link, tmp_path / "profile", deployment.fingerprint()) as page:
        deployment.wait_for(lambda: "Failed to fetch" in (page.text("log") or ""))
        assert "HTTP" not in page.text("log")


@needs_chromium
def test_keys_stay_in_the_browser(started):
    deployment, _, page = started
    before = page.text("key")
    page.value("window.before = true, location.reload()")
    deployment.wait_for(lambda: page.value("!window.before && Boolean(window.key?.textContent)"))
    assert page.text("key") == before
