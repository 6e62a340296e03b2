"""The strategies in the apps of tests/apps, which know Flower and nothing of this project.

Each run is a `flwr run` in processes of its own, of a copy of the app with the changed lines. With
the option -s the bytes that the runs sent are printed, as in docs/your-own-app.md.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.documents import ROOT
from tests.support.example_tasks import write_app
from tests.support.flwr_run import flwr, local_superlink
from tests.support.installed import install

pytestmark = pytest.mark.slow

# Starting a Ray worker takes longer than its work here.
ONE_WORKER = "client-resources-num-cpus=1 init-args-num-cpus=1"
IMPORT = "from flwr.serverapp.strategy import FedAvg\n"
MODS = "from flwr.clientapp import ClientApp\n"


class Outcome(NamedTuple):
    arrays: dict[str, np.ndarray]
    accuracy: float
    bytes_up: int
    bytes_down: int


# In these apps the strategy is a subclass of Flower's, in a file of its own: the class, and what it
# is told besides.
SUBCLASSES = {
    "advanced": ("CustomFedAvg", 'local_arrays=("classification_head.*",),'),
    "flowertune": ("FlowerTuneLlm", ""),
}
SPARSITY = {"flowertune": 0.1}
OTHERS = ("sklearn", "advanced", "flowertune", "jax")


def our_fedavg(name):
    """Return the changes of an app to our FedAvg: (file, line, its replacement)."""
    file = "strategy.py" if name in SUBCLASSES else "server_app.py"
    return ((file, IMPORT, "from fedavg_strategies.fedavg import FedAvg\n"),)


def stc(name):
    """Return the changes of an app to STC."""
    ((file, line, _),) = our_fedavg(name)
    made, further = SUBCLASSES.get(name, ("FedAvg", ""))
    p = SPARSITY.get(name, 0.05)
    call = f"strategy = {made}(sparsity_up={p}, sparsity_down={p}, {further}\n"
    return (
        (file, line, "from fedavg_strategies.stc import STC as FedAvg\n"),
        ("server_app.py", f"strategy = {made}(\n", call),
        ("client_app.py", MODS, MODS + "from fedavg_strategies import compression_mod\n"),
        ("client_app.py", "app = ClientApp()", "app = ClientApp(mods=[compression_mod])"),
    )


FLOWER, OURS, COMPRESSED = "flower", "ours", "stc"


def runs_of(name):
    """Return the changes, the number of SuperNodes and the settings of each run of an app.

    Two clients have as many examples each: the mean of two float32 is rounded once, whoever takes
    it. In one run of STC two of four clients train in a round, so that clients miss updates.
    """
    sampled = (4, "fraction-train=0.5") if name == "pytorch" else (2, "")
    return {FLOWER: ((), 2, ""), OURS: (our_fedavg(name), 2, ""), COMPRESSED: (stc(name), *sampled)}


def changed(name, changes, folder):
    """Write an app, with changed lines."""
    package = write_app(name, folder)
    for file, old, new in changes:
        path = package / file
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
    return folder


def outcome(environment, app, supernodes, keys, file):
    """Run an app to its end."""
    done = flwr(
        environment, "run", str(app), "--stream",
        "--federation-config", f"num-supernodes={supernodes} {ONE_WORKER}",
        "-c", f"result='{file}' {keys}",
    )  # fmt: skip
    # `flwr run` exits with 0 even when the run fails; the file is the last thing that a run makes.
    assert file.is_file(), done.stdout + done.stderr
    with np.load(file) as saved:
        arrays = {key: saved[key] for key in saved.files if key.startswith("array:")}
        numbers = (saved[key].item() for key in ("accuracy", "bytes_up", "bytes_down"))
        return Outcome(arrays, *numbers)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    with local_superlink(tmp_path_factory.mktemp("flwr")) as environment:
        environment |= {
            "PYTHONPATH": str(install(ROOT / "strategies", tmp_path_factory.mktemp("site")))
        }
        flwr(environment, "ls")  # starts the SuperLink, once
        yield environment


@pytest.fixture(
    scope="module",
    params=[
        # The others' strategies, arrays and metrics are those of integration/test_any_app.py.
        "pytorch",
        *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS),
    ],
)
def runs(request, environment, tmp_path_factory):
    """Return a function that returns a run's outcome; the runs mostly wait, so all run at once."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    with ThreadPoolExecutor(3) as pool:
        futures = {}
        for kind, (changes, supernodes, keys) in runs_of(name).items():
            app = changed(name, changes, folder / kind / name)
            file = folder / f"{kind}.npz"
            futures[kind] = pool.submit(outcome, environment, app, supernodes, keys, file)
        yield lambda kind: futures[kind].result()
        pool.shutdown(cancel_futures=True)


def size(arrays):
    return sum(array.nbytes for array in arrays.values())


def test_app_trains_with_flowers_fedavg(runs):
    flower = runs(FLOWER)
    assert flower.accuracy > 0.93
    # 20 rounds: two clients train in each, and two evaluate, but not the language model.
    assert flower.bytes_up > 40 * size(flower.arrays)
    assert flower.bytes_down > 40 * size(flower.arrays)


def test_our_fedavg_gives_the_same_model(runs):
    flower, ours = runs(FLOWER), runs(OURS)
    assert ours.arrays.keys() == flower.arrays.keys()
    for key, array in ours.arrays.items():
        if array.dtype == np.float64:  # ours weights by examples, then divides: another rounding
            np.testing.assert_allclose(array, flower.arrays[key], rtol=0, atol=1e-12)
        else:  # Flower's mean of integers is a float
            np.testing.assert_array_equal(array, flower.arrays[key], err_msg=key)
            assert array.dtype.kind == "i" or array.dtype == flower.arrays[key].dtype
    assert ours.accuracy == flower.accuracy
    assert ours.bytes_down == flower.bytes_down
    assert ours.bytes_up == flower.bytes_up


def test_stc_saves_bytes_both_ways_and_keeps_accuracy(runs):
    flower, compressed = runs(FLOWER), runs(COMPRESSED)
    for kind, run in ((FLOWER, flower), (COMPRESSED, compressed)):
        print(f"\n{kind}: {run.accuracy:.1%}, {run.bytes_up:,} up, {run.bytes_down:,} down")
    assert compressed.accuracy > flower.accuracy - 0.03
    assert compressed.bytes_up < flower.bytes_up / 20
    assert compressed.bytes_down < flower.bytes_down / 10
    assert compressed.arrays.keys() == flower.arrays.keys()
    for key, array in compressed.arrays.items():
        assert array.shape == flower.arrays[key].shape
        assert np.isfinite(array).all()
