"""The command `check`: what is right and what is wrong with a task, before it is trained."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

import tasks
from fedavg_app.cli.options import with_config
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.errors import ConfigError, RunError

if TYPE_CHECKING:
    from tasks.base import Task
    from tasks.checking import Finding
    from tasks.data.dataset import Dataset

KEYS = {"data_source", "data_dir", "partition", "partition_args", "num_clients", "seed"}
STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}


@with_config(RunConfig, RunConfig.model_fields.keys() - KEYS)
def check(
    config: RunConfig,
    *,
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="a task's name, or package.module:TASK")
    ],
) -> None:
    """Check a task: its data, model, loss and metric, and what its messages weigh.

    With `--partition` or `--num-clients` its data are split, too.
    """
    started = time.monotonic()
    is_split = bool(config.num_clients or config.partition != "iid")
    config = with_clients(config).model_copy(update={"task": task})
    import torch

    from fedavg_app.partitioning import partition
    from fedavg_app.plugins import load_component
    from fedavg_app.server.preparation import load_data, load_task
    from tasks.checking import Finding
    from tasks.checking.all_checks import all_checks

    torch.set_num_threads(1)  # as clients do: on a busy machine several wait for each other
    # A task that cannot be split by the default partition is checked without one.
    loaded = load_task(config) if is_split else load_component("task", task, tasks.load)
    data = load_data(config, loaded)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    errors = 0
    for finding in all_checks(loaded, data, config.seed):
        _show(console, finding)
        errors += finding.kind == "error"
    if is_split and not errors:
        sizes = partition(data, "train", config).sizes
        text = f"{config.num_clients:,} clients have {sizes.min():,} to {sizes.max():,} examples"
        _show(console, Finding("ok", "partition", f"{config.partition}: {text}"))
    if not errors:
        for line in message_sizes(config, loaded, data):
            console.print(line)
    console.print(f"{task}: checked in {time.monotonic() - started:.1f} s")
    if errors:
        raise RunError(f"{errors} error{'s' if errors > 1 else ''} in {task}")


def _show(console: Console, finding: "Finding") -> None:
    console.print(f"{finding.kind:8}", style=STYLES[finding.kind], end="")
    console.print(str(finding))


def message_sizes(config: RunConfig, task: "Task", data: "Dataset") -> Iterator[str]:
    """Yield the bytes of a first message and of a reply under each strategy, a line each.

    Raises:
        RunError: No strategy can train the task.
    """
    from flwr.serverapp import Grid

    import strategies
    from fedavg_app.client_settings import ServerFacts, client_settings
    from fedavg_app.flower_internals import identify_server
    from fedavg_app.optimizer_choice import resolve_work
    from fedavg_app.server.client_sampling import CohortGrid, cohort_size
    from fedavg_app.server.global_model import GlobalModel
    from fedavg_app.server.strategy_setup import CHECKS, Components, make_strategy
    from strategies.rounds.exchange import advance
    from strategies.rounds.flower_arrays import message_bytes

    identify_server(1)
    model = GlobalModel.initial(task, config)
    options = data.options
    facts = ServerFacts(options.source, options.directory, fixed_arrays=model.fingerprint)
    yield "bytes of a client's first message and, by the papers' formulas, of its reply:"
    no_grid = cast(Grid, None)
    nodes = list(range(1, cohort_size(config.fraction_train, config.num_clients) + 1))
    refused = 0
    for name in strategies.names():
        chosen = config.model_copy(update={"strategy": name})
        try:
            strategy, work = make_strategy(chosen, model), resolve_work(chosen, task)
            for check_parts in CHECKS:
                check_parts(Components(chosen, task, model, work, strategy))
        except ConfigError as error:
            yield f"  {name:12} {error}"
            refused += 1
            continue
        settings = client_settings(work, facts)
        settings["learning-rate"] = 1.0
        # Nothing is sent.
        exchange, _ = advance(strategy.round(1, model.sent, settings, CohortGrid(no_grid, nodes)))
        assert exchange is not None
        down = f"{message_bytes(exchange.messages[0]):,}" if exchange.is_main else "in stages"
        yield f"  {name:12} {down:>14} {round(strategy.reply_bits(1) / 8):>14,}"
    if refused == len(strategies.names()):
        raise RunError(f"no strategy can train {task.name}")
