"""Public measured plans that ship with fedperf: the coordinator's yardstick and catalogue.

They are the validation part of the project's measured set: a model version is judged by
its error on them, and synthetic rows are dressed in their plans. No model is trained on
their run times.
"""

from collections.abc import Sequence
from pathlib import Path

from fedperf_shared.errors import StorageError
from fedperf_shared.execution import MeasuredPlan
from fedperf_shared.wire.codec import decode_measured_plans, encode_measured_plans

PUBLIC_PLANS_PATH = Path(__file__).with_name("public_plans.binpb")


def load_public_plans(path: Path = PUBLIC_PLANS_PATH) -> tuple[MeasuredPlan, ...]:
    """The shipped plans.

    Raises:
        StorageError: the file is not there.
        InvalidInputError: it is damaged.
    """
    try:
        return decode_measured_plans(path.read_bytes())
    except OSError as error:
        raise StorageError(f"{path} cannot be read ({error.strerror}); install again") from error


def save_public_plans(plans: Sequence[MeasuredPlan], path: Path = PUBLIC_PLANS_PATH) -> None:
    """Write the plans; used when the project's measured set is made anew."""
    path.write_bytes(encode_measured_plans(plans))
