"""The ways to enumerate plans, by name; light, for the command line reads it."""

from enum import StrEnum, unique


@unique
class Method(StrEnum):
    """How plans are enumerated."""

    FRONTIER = "frontier"
    BEAM = "beam"
    DELAYED_GREEDY = "delayed_greedy"
    GREEDY = "greedy"
    EXHAUSTIVE = "exhaustive"
