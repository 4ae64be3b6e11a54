"""The choice of the next configuration of a grid to run, and of when enough were run."""

from enum import StrEnum, unique


@unique
class Strategy(StrEnum):
    """Which configurations of a grid a campaign measures, and in which order."""

    FULL = "full"
    RANDOM = "random"
    SPACE_FILLING = "space_filling"
    ACTIVE = "active"


CHOOSING = (Strategy.RANDOM, Strategy.SPACE_FILLING, Strategy.ACTIVE)
"""Those that stop when enough were measured."""
