"""Loads Flower before the tests, quietly: its dependencies warn while they are imported."""

import warnings

from fedperf_server.service import quiet_flower

quiet_flower()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fedperf_server.gateway  # noqa: F401
