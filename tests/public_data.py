"""Location of public data sets. Tests skip with a reason if a data set is missing."""

import os
from pathlib import Path

import pytest


def public_data(data_set: str) -> Path:
    """Return the folder that contains `data_set`, or skip the test."""
    folder = os.environ.get("FEDPERF_DATA")
    if not folder or not (Path(folder) / data_set).is_dir():
        pytest.skip(f"{data_set} is not here: FEDPERF_DATA names no folder that has it")
    return Path(folder)
