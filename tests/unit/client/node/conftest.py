"""Flower's settings for the tests, made before any of them imports it."""

from fedperf_shared.runtime.process import quiet_flower

quiet_flower()
