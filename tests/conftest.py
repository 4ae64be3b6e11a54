"""What holds for all tests.

Examples of hypothesis may be slow to draw when other tests use the machine, which says
nothing about the code.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared machine")
