"""A coordinator's linear queries and corrections in one year, as a program.

Tests run it once per kernel of OpenBLAS: `python -m tests.fakes.query_year OUT.npz` with
OPENBLAS_CORETYPE in its environment.
"""

import sys

import numpy as np
import threadpoolctl

from fedperf_server.inference.cell_directions import infer_cells
from fedperf_server.inference.drift_evidence import SHIFT
from fedperf_shared.workflow.vocabulary import Platform
from fedperf_simulations.experiments.drift.report_detection import REFERENCE, PlatformShift
from tests.fakes.report_years import read_drifts, year_of_reports

SHIFTS = (
    PlatformShift(Platform.POLARS, 5.2, SHIFT),
    PlatformShift(Platform.DUCKDB, 5.2, SHIFT, only="0"),
)


def kernels() -> list[str]:
    """Return the kernels in use by the OpenBLAS of numpy and of scipy."""
    return sorted(
        each["architecture"]
        for each in threadpoolctl.threadpool_info()
        if each["internal_api"] == "openblas"
    )


def main(path: str) -> None:
    """Write the queries, corrections and detected drifts of a year of two organizations."""
    year = year_of_reports(200, 2, SHIFTS, [1])
    questions = [each.query for each in year.query_responses]
    correction = infer_cells(
        year.plain, year.query_responses, reference_version=REFERENCE
    ).correction
    np.savez(
        path,
        kernels=kernels(),
        directions=[each.design.directions for each in questions],
        clips=[each.design.clips for each in questions],
        centers=[each.center for each in questions],
        correction=correction.mean,
        verdicts=[
            f"{each.platform.name} {each.since} {each.detected_in} {' '.join(each.organizations)}"
            for each in read_drifts(year.plain, year.query_responses)
        ],
    )


if __name__ == "__main__":
    main(sys.argv[1])
