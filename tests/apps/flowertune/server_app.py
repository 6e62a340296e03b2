from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from . import task
from .shared import MeasuredGrid, save
from .strategy import FlowerTuneLlm

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the adapters; test them on the server's texts."""
    measured, rounds = MeasuredGrid(grid), context.run_config["num-server-rounds"]
    strategy = FlowerTuneLlm(
        fraction_evaluate=0.0,
    )
    strategy.rates = (rounds, 0.02, 0.002)
    arrays = task.initial_arrays(context.run_config["seed"])
    result = strategy.start(grid=measured, initial_arrays=arrays, num_rounds=rounds)
    accuracy = task.accuracy(result.arrays)
    print(f"Final accuracy: {accuracy:.4f}; {strategy.comm_tracker.curr_comm_cost:.2f} MB")
    save(context.run_config["result"], result.arrays, accuracy, measured)
