"""The policy with which a period began, kept beside its ledger: a later one counts from the next.

Only what the schedule follows from is kept; whether a kind leaves, a daemon reads when it starts.
"""

import json
from dataclasses import fields
from pathlib import Path

from fedperf_client.release.policy import Policy
from fedperf_shared.errors import StorageError

READ_AT_START = frozenset({"residual_report", "model_update"})
"""What counts from the daemon's next start on."""


def frozen_part(policy: Policy) -> bytes:
    """What a period's schedule follows from, as a file holds it."""
    kept = {
        field.name: getattr(policy, field.name)
        for field in fields(policy)
        if field.name not in READ_AT_START
    }
    return json.dumps(kept, indent=1).encode()


def changes_since(path: Path, policy: Policy) -> tuple[str, ...]:
    """What `policy` says otherwise than the one in the file, each as "key old -> new".

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        begun = json.loads(path.read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read: {error}") from error
    now = json.loads(frozen_part(policy))
    return tuple(
        f"{name} {_word(begun.get(name))} -> {_word(now[name])}"
        for name in now
        if begun.get(name) != now[name]
    )


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value)
