"""Tests of opening the coordinator's database."""

import traceback
from collections.abc import Callable

import pytest

from fedperf_server.state.database import Database, DatabaseError


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+nodriver://member:s3cret@127.0.0.1/fedperf",
        "nodatabase://member:s3cret@127.0.0.1/fedperf",
        "nodatabase://127.0.0.1/fedperf?password=s3cret",
        "member:s3cret@127.0.0.1",
        "postgresql://127.0.0.1:s3cret/fedperf",
    ],
)
@pytest.mark.parametrize("opened", [Database, Database.existing])
def test_database_that_cannot_be_opened_keeps_its_password_out_of_the_message(
    url: str, opened: Callable[[str], Database]
) -> None:
    with pytest.raises(DatabaseError, match="database") as refusal:
        opened(url)
    assert "s3cret" not in str(refusal.value)
    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))
