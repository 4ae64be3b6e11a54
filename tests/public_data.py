"""Where tests find public data sets; they skip, with the reason, where there are none."""

import os
from pathlib import Path

import pytest


def public_data(data_set: str) -> Path:
    """The folder of public data sets, in which `data_set` is a folder; else the test skips."""
    folder = os.environ.get("FEDPERF_DATA")
    if not folder or not (Path(folder) / data_set).is_dir():
        pytest.skip(f"{data_set} is not here: FEDPERF_DATA names no folder that has it")
    return Path(folder)
