"""Ray for all runs of a sweep, so that each does not start its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache


@contextmanager
def shared_ray(num_workers: int) -> Iterator[Callable[[], str]]:
    """Yield what returns the address of a Ray, for the option ``--ray-address`` of runs.

    Ray starts with the first call, which may raise a RunError, and ends with the context. Where
    there is a GPU the address is empty, and runs start Ray themselves: each divides the GPUs it
    finds among its own workers, and would wait for those that another run has.

    Args:
        num_workers: The workers of all runs that go on at a time.
    """
    with ExitStack() as stack:

        @cache
        def address() -> str:
            import ray  # takes a second

            from fedavg_app.ray_engine.ray_cluster import ray_cluster

            stack.enter_context(ray_cluster("", num_workers, 0.0, "cpu"))()
            has_gpu = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
            return "" if has_gpu else ray.get_runtime_context().gcs_address

        yield address
