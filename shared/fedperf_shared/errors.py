"""The root of every error that fedperf raises on purpose, and the exit codes of the programs.

An error is one clear line: what happened, the value, the limit, what to do.
Programs print that line and end with the class's `exit_code`; anything else is a bug.
"""

from typing import ClassVar


class FedperfError(Exception):
    """Something went wrong that a user can understand and mend."""

    exit_code: ClassVar[int] = 1


class InvalidInputError(FedperfError):
    """A file, a value or a message from outside does not say what it should."""

    exit_code = 3


class ConfigurationError(FedperfError):
    """The configuration is wrong; the message lists every problem with its key."""

    exit_code = 3


class StorageError(FedperfError):
    """A local database or file cannot be read or written."""

    exit_code = 4


class PrivacyRefusedError(FedperfError):
    """A release was refused because the promise to the workloads would not hold."""

    exit_code = 5


class ConnectionRefusedByPeerError(FedperfError):
    """The other side could not be reached or does not accept this identity."""

    exit_code = 6
