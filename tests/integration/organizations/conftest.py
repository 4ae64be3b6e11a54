"""Flower's settings for the tests, made before any of them imports it."""

from fedperf_server.service import quiet_flower

quiet_flower()
