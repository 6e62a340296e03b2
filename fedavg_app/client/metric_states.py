"""The states of a client's metrics in the reply to a test, for metrics that are no plain means."""

from collections.abc import Sequence

import numpy as np
from flwr.app import ArrayRecord

from strategies.rounds.flower_arrays import from_record, to_record
from tasks.metrics import Metric, State
from tasks.training.evaluation import BatchResult

# The record with the states, batch by batch: "0/f1/tp" is the state "tp" of "f1" in batch 0.
STATES = "metric-states"


def write_states(results: Sequence[BatchResult], number: int) -> ArrayRecord | None:
    """Return the states of a test; None where all metrics are means over the examples.

    Args:
        results: Of the batches.
        number: Of the examples.
    """
    states = [state for batch in results for state in batch.states.values()]
    if all(state.keys() == {"sum", "count"} for state in states):
        counted = [
            sum(float(batch.states[name]["count"]) for batch in results)
            for name in results[0].states
        ]
        if all(count == number for count in counted):
            return None
    return to_record(
        {
            f"{place}/{name}/{part}": array
            for place, batch in enumerate(results)
            for name, state in batch.states.items()
            for part, array in state.items()
        }
    )


def read_states(record: ArrayRecord, name: str, metric: Metric) -> list[State]:
    """Return the states of a metric, batch by batch.

    Raises:
        ValueError: They are not there, not finite, or not those of such a metric.
    """
    states: dict[int, State] = {}
    for key, array in from_record(record).items():
        place, metric_name, part = key.split("/")
        if metric_name == name:
            states.setdefault(int(place), {})[part] = array
    parts = metric.parts()
    for state in states.values():
        if state.keys() != parts.keys():
            raise ValueError(f"there are {', '.join(state)}, not {', '.join(parts)}")
        for part, array in state.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{part} is not finite")
    if not states:
        raise ValueError("they are missing")
    return list(states.values())
