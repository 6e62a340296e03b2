"""Whether a GPU gives the CPU's results, and how long a round takes for workers that share it.

    python -m benchmarks.gpu_check [--device cuda] [--workers 1 2 4 8]

Every task's client trains on the device and on the CPU; then runs on RayGrid with some numbers of
workers on one GPU are timed, without their first two rounds. Without a GPU this says so and exits
with 1, as it does where results differ.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

import tasks
from fedavg_app.config import parse_config
from tasks.base import Task
from tasks.model_arrays import read_arrays, state_of
from tasks.training.local_training import TaskClient
from tasks.training.training_settings import TrainingSettings
from tests.support.made_up_examples import noise

EXAMPLES = 23  # the last batch is smaller
# How far weights may be apart, as a share of what training changed most. Single gradients differ by
# 1e-6; over some steps that decides which of two almost equal pixels is the largest of a pool.
TOLERANCE = 1e-2
TIMED = ("mnist-2nn", "mnist-cnn")
ROUNDS = 8


def trained(task: Task, device: torch.device) -> list[Tensor]:
    """Return how far a client's local training on the device changes each array."""
    model = task.network(1, device)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # it draws other numbers on a GPU
    initial = task.initial_model(1)
    start = read_arrays(initial, tuple(state_of(initial)))
    examples = task.examples(noise(task, EXAMPLES), device)
    rate = task.learning_rate / 5  # noise diverges at the full rate
    settings = TrainingSettings(
        learning_rate=rate, local_epochs=2, batch_size=10, momentum=0.5, proximal_mu=0.1, seed=1,
        server_round=1,
    )  # fmt: skip
    found = TaskClient(task, lambda: model, examples).train(start, settings)
    return [torch.from_numpy(found.arrays[name] - array) for name, array in start.items()]


def compare(device: torch.device) -> bool:
    """Print how far results are apart; return whether all are within the tolerance."""
    print(f"| task | {device} to cpu | |\n| --- | --- | --- |")
    # Products in float32, not in TF32, which convolutions on a GPU use by default.
    torch.backends.cudnn.allow_tf32 = False
    passed = True
    for name in tasks.names():
        task = replace(tasks.load(name), augment=None)
        here, there = (trained(task, place) for place in (torch.device("cpu"), device))
        apart = max(float((a - b).abs().max()) for a, b in zip(here, there, strict=True))
        found = apart / max(float(a.abs().max()) for a in here)
        equal = found <= TOLERANCE  # not for NaN either
        passed &= equal
        print(f"| {name} | {found:.1e} | {'ok' if equal else 'DIFFERENT'} |", flush=True)
    return passed


def time_workers(numbers: Sequence[int], device: str) -> None:
    """Print the seconds of a round of 20 clients on so many workers that share one GPU.

    A last column says whether the final models are equal to the bit: a GPU may sum in another order
    each time.
    """
    from fedavg_app.ray_engine.simulation import simulate

    print(f"\n| task | {' | '.join(f'{n} workers' for n in numbers)} | models |")
    print(f"| --- |{' --- |' * (len(numbers) + 1)}", flush=True)
    for name in TIMED:
        medians, models = [], set()
        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                config = parse_config(
                    {
                        "task": name, "data-source": "embedded", "device": device,
                        "num-server-rounds": ROUNDS, "fraction-train": 0.2, "target": "none",
                        "evaluate-every": ROUNDS, "run-dir": folder,
                    }
                )  # fmt: skip
                share = 1 / number if device == "cuda" else 0.0
                result = simulate(config, num_workers=number, gpus_per_worker=share)
            medians.append(statistics.median(metrics.seconds for metrics in result.history[3:-1]))
            assert result.model is not None
            models.add(b"".join(array.data for array in result.model.values()))
        seconds = " | ".join(f"{median:.3f} s" for median in medians)
        equal = "equal" if len(models) == 1 else "differ"
        print(f"| {name} | {seconds} | {equal} |", flush=True)


def main() -> int:
    """Compare and measure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here; --device cpu compares on the CPU", file=sys.stderr)
        return 1
    torch.set_num_threads(1)
    device = torch.device(chosen.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "the CPU, one thread"
    print(f"{name}, torch {torch.__version__}\n")
    if not compare(device):
        return 1
    if chosen.workers:
        time_workers(chosen.workers, chosen.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
