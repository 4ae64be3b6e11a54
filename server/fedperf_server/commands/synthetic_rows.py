"""`fedperf-server synthesize`: rows like those of the published synthetic batch.

They follow from what is published, so that drawing more costs no privacy.
"""

from typing import Annotated

import typer

from fedperf_server.commands.directory_option import Json, config_of
from fedperf_shared.programs.command_line import show_rows


def synthesize(
    context: typer.Context,
    platform: Annotated[str | None, typer.Option(help="Only this platform.")] = None,
    operator_class: Annotated[
        str | None, typer.Option(help="Only this class: relational, text, graph or ml.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Only this size: source rows below 10^4 (0), 10^5 (1), 10^6 (2), more."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of what is drawn.")] = 0,
    json: Json = False,
) -> None:
    """Draw executions like those of the published synthetic batch; costs no privacy."""
    from fedperf_server.rehearsal.synthetic_batch import CellCondition, SyntheticBatch, more_rows
    from fedperf_server.state.database import Database

    condition = CellCondition.parse(platform=platform, operator_class=operator_class, size=size)
    with Database.existing(config_of(context).database_url).transaction() as session:
        batch = SyntheticBatch.published(session)
    drawn = more_rows(batch, condition, rows=rows, seed=seed)
    show_rows([row.as_record() for row in drawn], json=json, empty="no rows")
