"""Models fetched from the coordinator, stored as files and read as pretrained models.

There may be three pretrained models: the public one that ships with fedperf, the newest shared one,
and the reference version that the coordinator's correction belongs to. This module works offline.
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

from fedperf_client.prediction.learners.base_learners import (
    PUBLIC,
    REFERENCE,
    SHARED,
    CellCorrection,
    InvalidCorrectionError,
    Learner,
    joined_learners,
    public_learners,
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

# Writes a file so that a reader sees the old or the whole new one.
ReplaceFile = Callable[[Path, bytes], None]

_SHARED, _REFERENCE = "shared.safetensors", "reference.safetensors"
_CORRECTION, _REGIMES = "correction.safetensors", "epochs.json"


@dataclass(frozen=True, slots=True)
class FetchedModels:
    """The directory of fetched models, with their correction and drift regimes."""

    directory: Path

    @property
    def shared_version(self) -> int:
        """Version of the newest shared model here, 0 without one."""
        fetched = self._fetched(_SHARED)
        return fetched.model_version if fetched else 0

    @property
    def reference_version(self) -> int:
        """Version of the reference model here, 0 without one."""
        fetched = self._fetched(_REFERENCE)
        return fetched.model_version if fetched else 0

    def keep_shared(self, checkpoint: bytes) -> None:
        """Store a shared model, checked; errors as `decode_checkpoint`, `save_checkpoint`."""
        self._keep(_SHARED, checkpoint)

    def keep_reference(self, checkpoint: bytes) -> None:
        """Store the reference model, checked; errors as `keep_shared`.

        A stored correction belongs to the previous reference and is removed.
        """
        decode_checkpoint(checkpoint)
        (self.directory / _CORRECTION).unlink(missing_ok=True)
        self._keep(_REFERENCE, checkpoint)

    def keep_correction(self, correction: CellCorrection, replace_file: ReplaceFile) -> None:
        """Store the coordinator's correction to the reference model."""
        arrays = {"mean": correction.mean, "covariance": correction.covariance}
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self.directory / _CORRECTION, save(arrays))

    def correction(self) -> CellCorrection:
        """Return the stored correction; one without information if there is none.

        Raises:
            StorageError: the file cannot be read.
        """
        path = self.directory / _CORRECTION
        if not path.is_file():
            return CellCorrection.uninformative()
        try:
            arrays = load(path.read_bytes())
            return CellCorrection(
                np.asarray(arrays["mean"], np.float64),
                np.asarray(arrays["covariance"], np.float64),
            )
        except (OSError, SafetensorError, KeyError, InvalidCorrectionError) as error:
            raise StorageError(
                f"{path} cannot be read ({error}); remove it, and the daemon fetches it again"
            ) from error

    def reference(self) -> Checkpoint:
        """Return the reference model, or the public pretrained model if none was fetched."""
        fetched = self._fetched(_REFERENCE)
        return fetched if fetched and fetched.model_version else load_pretrained_model()

    def keep_regime_starts(self, starts: Sequence[datetime], replace_file: ReplaceFile) -> None:
        """Store when each drift regime after the first one began."""
        if tuple(starts) != self.regime_starts():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(
                self.directory / _REGIMES, orjson.dumps([each.isoformat() for each in starts])
            )

    def regime_starts(self) -> tuple[datetime, ...]:
        """Return when each fetched drift regime after the first one began, oldest first.

        Raises:
            StorageError: the file cannot be read.
        """
        path = self.directory / _REGIMES
        if not path.is_file():
            return ()
        try:
            return tuple(map(datetime.fromisoformat, orjson.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError) as error:
            raise StorageError(
                f"{path} cannot be read ({error}); remove it, and the daemon fetches it again"
            ) from error

    @property
    def newest(self) -> Path | None:
        """The file of the newest fetched model, shared before reference; None before any."""
        if self.shared_version:
            return self.directory / _SHARED
        return self.directory / _REFERENCE if self.reference_version else None

    def base_models(self) -> dict[str, PredictLog]:
        """Return every pretrained model by name; the shared one only after joining."""
        public = predictor(load_pretrained_model())
        models = {PUBLIC: public, REFERENCE: public}
        for name, file in ((REFERENCE, _REFERENCE), (SHARED, _SHARED)):
            fetched = self._fetched(file)
            if fetched and fetched.model_version:
                models[name] = predictor(fetched)
        return models

    def learners(self) -> tuple[Learner, ...]:
        """Return the learners that can use these models; errors as `correction`."""
        if not (self.shared_version or self.reference_version):
            return public_learners()
        is_newer = self.shared_version > self.reference().model_version
        return joined_learners(self.correction(), is_newer=is_newer)

    def digest(self) -> bytes:
        """Return 32 bytes that differ if any model or correction differs."""
        digest = hashlib.sha256()
        files = (self.directory / name for name in (_SHARED, _REFERENCE, _CORRECTION))
        for path in (pretrained_model_path(), *files):
            digest.update(path.read_bytes() if path.is_file() else b"none")
            digest.update(b"|")
        return digest.digest()

    def _fetched(self, name: str) -> Checkpoint | None:
        """Load a model. An unchanged file is read once, since a daemon loads it often."""
        path = self.directory / name
        if not path.is_file():
            return None
        status = path.stat()
        return _read(path, status.st_mtime_ns, status.st_ino)

    def _keep(self, name: str, checkpoint: bytes) -> None:
        checked = decode_checkpoint(checkpoint)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        save_checkpoint(self.directory / name, checked)


def predictor(checkpoint: Checkpoint) -> PredictLog:
    """Return the checkpoint's GGFN as a function from queries to log seconds."""
    network = GgfnArrays.of(checkpoint)
    return lambda queries: network.log_seconds([each.features for each in queries])


@lru_cache(maxsize=4)
def _read(path: Path, modified_ns: int, inode: int) -> Checkpoint:
    del modified_ns, inode
    return load_checkpoint(path)
