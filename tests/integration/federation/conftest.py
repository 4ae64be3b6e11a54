"""Settings of Flower for the tests, applied before any test module imports Flower."""

from fedperf_shared.runtime.process import quiet_flower

quiet_flower()
