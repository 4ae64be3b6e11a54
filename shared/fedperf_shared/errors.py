"""The root of every error that fedperf raises on purpose, and the exit codes of the programs.

An error is one clear line: what happened, the value, the limit, what to do.
Programs print that line and end with the class's `exit_code`; anything else is a bug.
"""

from typing import ClassVar


class FedperfError(Exception):
    """Raised for a problem that a user can understand and correct."""

    exit_code: ClassVar[int] = 1


class InvalidInputError(FedperfError):
    """Raised for an invalid file, value or message from outside."""

    exit_code = 3


class ConfigurationError(FedperfError):
    """Raised for a wrong configuration. The message lists every problem with its key."""

    exit_code = 3


class StorageError(FedperfError):
    """Raised if a local database or file cannot be read or written."""

    exit_code = 4


class PrivacyRefusedError(FedperfError):
    """Raised for a release that would break the privacy guarantee of the workloads."""

    exit_code = 5


class ConnectionRefusedByPeerError(FedperfError):
    """Raised if the other side cannot be reached or does not accept this identity."""

    exit_code = 6
