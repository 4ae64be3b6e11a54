"""Tests of release kinds: each has one row in every layer's table, of matching kind."""

from collections.abc import Collection
from dataclasses import fields

import pytest

from fedperf_client.contributions.mechanisms import CONSTRUCTORS
from fedperf_client.release.accountant import EVENTS
from fedperf_server.state.validation import CHECKS
from fedperf_shared.releases.kinds import (
    KINDS,
    MODEL_UPDATE,
    RESIDUAL_REPORT,
    AnyKind,
    fits,
    kind_of,
)
from fedperf_shared.releases.release import (
    InvalidReleaseError,
    ModelUpdate,
    ReleaseKind,
    Slot,
    SlotKey,
    TrainingParameters,
)
from fedperf_shared.wire import exchange_pb2, release_pb2
from fedperf_shared.wire.codec import PARAMETERS

SUMMED = [kind for kind in KINDS if kind.numbers is not None]

KEY = SlotKey(ReleaseKind.MODEL_UPDATE, 0, 0)
SLOT = Slot(KEY, TrainingParameters(1.0, 0.1, 10, 1.0, 100.0))
UPDATE = ModelUpdate(KEY, 1, 1, ())


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        (PARAMETERS, KINDS),
        (EVENTS, KINDS),
        (CHECKS, SUMMED),
        (CONSTRUCTORS, SUMMED),
    ],
    ids=["parameters", "events", "checks", "noisy sums"],
)
def test_kind_table_has_one_row_for_each_release_kind(
    table: Collection[AnyKind], kinds: Collection[AnyKind]
) -> None:
    assert set(table) == set(kinds)
    assert len(table) == len(kinds)


def test_release_kinds_have_distinct_names_and_classes() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len({each for kind in KINDS for each in (kind.parameters, kind.release)}) == (
        2 * len(KINDS)
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_wire_message_fields_match_the_class_of_their_release_kind(kind: AnyKind) -> None:
    release = getattr(release_pb2.Release(), kind.name).DESCRIPTOR
    planned = getattr(exchange_pb2.Slot(), PARAMETERS[kind]).DESCRIPTOR
    assert set(release.fields_by_name) == {each.name for each in fields(kind.release)}
    assert set(planned.fields_by_name) == {each.name for each in fields(kind.parameters)}


def test_wire_messages_have_no_kind_without_a_table_row() -> None:
    releases = release_pb2.Release.DESCRIPTOR.oneofs_by_name["content"].fields
    planned = exchange_pb2.Slot.DESCRIPTOR.oneofs_by_name["parameters"].fields
    assert {each.name for each in releases} == {kind.name for kind in KINDS}
    assert {each.name for each in planned} == set(PARAMETERS.values())


def test_release_kind_refuses_objects_of_another_kind_by_name() -> None:
    assert kind_of(UPDATE) is kind_of(SLOT.parameters) is MODEL_UPDATE
    assert fits(UPDATE, SLOT)
    assert MODEL_UPDATE.as_release(UPDATE) is UPDATE
    assert MODEL_UPDATE.as_parameters(SLOT.parameters) is SLOT.parameters
    with pytest.raises(InvalidReleaseError, match="model_update, expected residual_report"):
        RESIDUAL_REPORT.as_release(UPDATE)
    with pytest.raises(InvalidReleaseError, match="model_update, expected residual_report"):
        RESIDUAL_REPORT.as_parameters(SLOT.parameters)
