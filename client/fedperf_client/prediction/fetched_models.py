"""Models fetched from the coordinator, kept as files and read as start models of the predictors.

Three start models may be there: the public one that ships with fedperf, the newest shared one, and
the reference version that the coordinator's correction belongs to. Everything here works offline.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

import numpy as np
import orjson
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedperf_client.prediction.ensemble.learner_catalogue import joined_learners, public_learners
from fedperf_client.prediction.learners.learner import Learner
from fedperf_client.prediction.learners.residual_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    CellCorrection,
    InvalidCorrectionError,
)
from fedperf_client.prediction.prediction import PredictLog
from fedperf_shared.errors import StorageError
from fedperf_shared.model.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fedperf_shared.model.inference import GgfnArrays
from fedperf_shared.model.pretrained import load_pretrained_model, pretrained_model_path

ReplaceFile = Callable[[Path, bytes], None]
"""Writes a file so that a reader sees the old or the whole new one."""


@dataclass(frozen=True, slots=True)
class FetchedModels:
    """The directory of fetched models, with their correction and epochs."""

    directory: Path

    @property
    def shared_version(self) -> int:
        """Version of the newest shared model here, 0 where there is none."""
        return _version(self._shared)

    @property
    def reference_version(self) -> int:
        """Version of the reference model here, 0 where there is none."""
        return _version(self._reference)

    def keep_shared(self, checkpoint: bytes) -> None:
        """Keep a shared model, checked; errors as `decode_checkpoint`, `save_checkpoint`."""
        self._keep(self._shared, checkpoint)

    def keep_reference(self, checkpoint: bytes) -> None:
        """Keep the reference model, checked; errors as `keep_shared`.

        A correction that is here belongs to the reference before and is dropped.
        """
        decode_checkpoint(checkpoint)
        self._correction.unlink(missing_ok=True)
        self._keep(self._reference, checkpoint)

    def keep_correction(self, correction: CellCorrection, replace_file: ReplaceFile) -> None:
        """Keep the coordinator's correction to the reference model."""
        arrays = {"mean": correction.mean, "covariance": correction.covariance}
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._correction, save(arrays))

    def correction(self) -> CellCorrection:
        """The correction kept here; nothing known where there is none.

        Raises:
            StorageError: the file cannot be read.
        """
        if not self._correction.is_file():
            return CellCorrection.nothing_known()
        try:
            arrays = load(self._correction.read_bytes())
            return CellCorrection(
                np.asarray(arrays["mean"], np.float64),
                np.asarray(arrays["covariance"], np.float64),
            )
        except (OSError, SafetensorError, KeyError, InvalidCorrectionError) as error:
            raise StorageError(
                f"{self._correction} cannot be read ({error}); remove it, and the daemon "
                "fetches it again"
            ) from error

    def reference(self) -> Checkpoint:
        """The reference model, the public start where none was fetched."""
        return _kept(self._reference) if self.reference_version else load_pretrained_model()

    def keep_epoch_starts(self, starts: Sequence[datetime], replace_file: ReplaceFile) -> None:
        """Keep when each epoch after the first one began."""
        if tuple(starts) != self.epoch_starts():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._epochs, orjson.dumps([each.isoformat() for each in starts]))

    def epoch_starts(self) -> tuple[datetime, ...]:
        """When each epoch after the first one began, oldest first, as far as was fetched.

        Raises:
            StorageError: the file cannot be read.
        """
        if not self._epochs.is_file():
            return ()
        try:
            return tuple(map(datetime.fromisoformat, orjson.loads(self._epochs.read_bytes())))
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(
                f"{self._epochs} cannot be read ({error}); remove it, and the daemon "
                "fetches it again"
            ) from error

    @property
    def newest(self) -> Path | None:
        """The file of the newest model that was fetched, shared before reference."""
        if self.shared_version:
            return self._shared
        return self._reference if self.reference_version else None

    def starts(self) -> dict[str, PredictLog]:
        """Every start model that is there, by name; the shared one only after joining."""
        public = predictor(load_pretrained_model())
        fetched = self.reference_version > 0
        found = {PUBLIC: public, REFERENCE: predictor(self.reference()) if fetched else public}
        if self.shared_version:
            found[SHARED] = predictor(_kept(self._shared))
        return found

    def learners(self) -> tuple[Learner, ...]:
        """The learners that can use what is here; errors as `correction`."""
        if not (self.shared_version or self.reference_version):
            return public_learners()
        is_newer = self.shared_version > self.reference().model_version
        return joined_learners(self.correction(), is_newer=is_newer)

    def digest(self) -> bytes:
        """32 bytes that differ where any model or correction here does."""
        found = hashlib.sha256()
        for path in (
            pretrained_model_path(),
            self._shared,
            self._reference,
            self._correction,
        ):
            found.update(path.read_bytes() if path.is_file() else b"none")
            found.update(b"|")
        return found.digest()

    @property
    def _shared(self) -> Path:
        return self.directory / "shared.safetensors"

    @property
    def _reference(self) -> Path:
        return self.directory / "reference.safetensors"

    @property
    def _correction(self) -> Path:
        return self.directory / "correction.safetensors"

    @property
    def _epochs(self) -> Path:
        return self.directory / "epochs.json"

    def _keep(self, path: Path, checkpoint: bytes) -> None:
        checked = decode_checkpoint(checkpoint)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_checkpoint(path, checked)


def predictor(checkpoint: Checkpoint) -> PredictLog:
    """The checkpoint's GGFN as a function from questions to log seconds."""
    network = GgfnArrays.of(checkpoint)
    return lambda questions: network.log_seconds([each.features for each in questions])


def _version(path: Path) -> int:
    return _kept(path).model_version if path.is_file() else 0


def _kept(path: Path) -> Checkpoint:
    """As `load_checkpoint`; a file that did not change is read once, for a daemon asks often."""
    try:
        found = path.stat()
    except OSError:
        return load_checkpoint(path)  # which says what is wrong
    return _read(path, found.st_mtime_ns, found.st_ino)


@lru_cache(maxsize=4)
def _read(path: Path, modified_ns: int, inode: int) -> Checkpoint:
    del modified_ns, inode
    return load_checkpoint(path)
