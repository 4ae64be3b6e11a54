"""`fedperf calibrate`: run workloads that ship with fedperf on this machine."""

from typing import Annotated

import typer

from fedperf_client.commands.program import Json, home_of, now
from fedperf_shared.runtime.command_line import show


def calibrate(
    context: typer.Context,
    executions: Annotated[int, typer.Option(min=1, help="Number of executions.")] = 100,
    family: Annotated[
        list[str] | None, typer.Option(help="Families to draw from; all by default.")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Largest input.")] = 100_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every run.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed for drawing workloads.")] = 0,
    json: Json = False,
) -> None:
    """Run workloads that ship with fedperf on this machine and store what was measured."""
    from fedperf_client.formatting.progress import counting_bar
    from fedperf_client.home.store import ExecutionStore
    from fedperf_engines.trials.shipped_workloads import profile_shipped

    home = home_of(context)
    with ExecutionStore.open(home.store) as store, counting_bar("profiling", executions) as advance:
        statuses = profile_shipped(
            store,
            data_directory=home.data,
            count=executions,
            families=family or [],
            max_rows=max_rows,
            threads=threads,
            seed=seed,
            clock=now,
            on_progress=lambda: advance(1, ""),
        )
    show({"executions": sum(statuses.values()), "status": statuses}, json=json)
