"""Keeps the temporary directories of a program under test; `freeze` puts it on PYTHONPATH."""

import os
import tempfile

_DIRECTORY = os.environ.get("FREEZE_KEEPS")


class _Kept(tempfile.TemporaryDirectory):  # type: ignore[type-arg]
    def __init__(self, suffix=None, prefix=None, dir=None, **options):  # type: ignore[no-untyped-def] # noqa: A002
        del dir
        super().__init__(suffix, prefix, _DIRECTORY, **options)
        self._finalizer.detach()  # type: ignore[attr-defined]

    def cleanup(self) -> None:
        """Leave everything."""


if _DIRECTORY:
    tempfile.TemporaryDirectory = _Kept  # type: ignore[assignment,misc]
