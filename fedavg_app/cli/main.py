"""The program: its commands, and what it prints of errors."""

import atexit
import io
import logging
import os
import signal
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import click
import typer

from fedavg_app.cli.check import check
from fedavg_app.cli.compare import compare
from fedavg_app.cli.components import list_components
from fedavg_app.cli.doctor import doctor
from fedavg_app.cli.evaluate import evaluate
from fedavg_app.cli.new_task import new_task
from fedavg_app.cli.partition import show_partition
from fedavg_app.cli.plan import plan
from fedavg_app.cli.runs import list_runs
from fedavg_app.cli.show import show
from fedavg_app.cli.sweep import sweep
from fedavg_app.cli.training import central, resume, run
from fedavg_app.errors import REMOVED_KEYS, USER_ERRORS, error_place
from fedavg_app.plugins import CALLBACKS

# The exit status of a program that SIGINT ended; typer returns it, too.
INTERRUPTED = 130

app = typer.Typer(
    name="fedavg",
    help="Communication-efficient federated learning on Flower.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(resume)
app.command()(central)
app.command()(check)
app.command("new-task")(new_task)
app.command("partition")(show_partition)
app.command()(evaluate)
app.command("runs")(list_runs)
app.command()(show)
app.command()(compare)
app.command()(sweep)
app.command()(plan)
app.command("list")(list_components)
app.command()(doctor)


class _StderrHandler(logging.Handler):
    """Writes to the current stderr: the live display replaces it to keep lines apart."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)  # noqa: T201


def _print_version(*, asked: bool) -> None:
    if asked:
        print(f"fedavg-app {version('fedavg-app')}, flwr {version('flwr')}")  # noqa: T201
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[
        bool, typer.Option("--debug", help="print the tracebacks of errors, and debug messages")
    ] = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="print the version", is_eager=True,
            callback=lambda asked: _print_version(asked=asked),
        ),
    ] = False,
) -> None:  # fmt: skip
    """Communication-efficient federated learning on Flower."""
    del show_version
    if debug:
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.DEBUG)
        logging.getLogger("fedavg_app").setLevel(logging.DEBUG)


def run_process() -> None:
    """Run the program as all that its process does; exit with its status.

    The process ends after the last exit handler: Python would take up to a second to unload torch.
    """
    status = 1

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    atexit.register(end)  # the first registered is the last called
    try:
        status = main()
    except SystemExit as error:  # a signal
        status = int(error.code or 0)
    sys.exit(status)


def main() -> int:
    """Run the program; return its exit status."""
    return run_command_line(app)


def run_command_line(program: typer.Typer) -> int:
    """Parse the command line and run its command; return the exit status.

    Errors that a user can act on are one line on stderr, and so are errors in a user's own code,
    with the file and the line that raised them.
    """
    for stream in (sys.stdout, sys.stderr):  # of ASCII, for example
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    handler = _StderrHandler(logging.INFO)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("datasets").setLevel(logging.WARNING)  # it says which JAX is installed
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it lists the glyphs of a PDF
    logging.getLogger("ray").setLevel(logging.ERROR)
    flower = logging.getLogger("flwr")
    flower.setLevel(logging.WARNING)
    flower.handlers.clear()  # its own would print every line again, through the live display
    # A run ends its own processes, whatever signal ends it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # For the user's own modules, after all others; `python` has it, an installed program does not.
    sys.path.append(str(Path.cwd()))
    try:
        return int(program(standalone_mode=False) or 0)
    except click.NoSuchOption as error:
        fix = REMOVED_KEYS.get(error.option_name.removeprefix("--"), "")
        return _failed(f"{error.option_name}: {fix}" if fix else error.format_message(), 2)
    except click.UsageError as error:
        return _failed(error.format_message(), 2)
    except USER_ERRORS as error:
        return _failed(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except ModuleNotFoundError as error:
        extra = error.name if error.name in CALLBACKS.built_in else "simulation"
        return _failed(f"{error.name} is missing; run: pip install 'fedavg-app[{extra}]'", 1)
    except Exception as error:
        logging.getLogger("fedavg_app").debug("%s", traceback.format_exc())
        hint = "" if handler.level == logging.DEBUG else "; --debug shows the traceback"
        return _failed(f"{error_place(error)}{hint}", 1)


def _failed(text: str, status: int) -> int:
    print(f"error: {text}", file=sys.stderr)  # noqa: T201
    return status


if __name__ == "__main__":
    run_process()
