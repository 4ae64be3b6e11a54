"""Things that are closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Entering gives the thing itself; leaving, with or without an error, closes it."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release the resources; return whether the object can be used again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
