"""What is claimed of the start that ships: a width for every platform, the widest of a plan's."""

import math

import pytest

from fedperf_shared.model import public_start
from fedperf_shared.model.public_start import HALF_WIDTHS, half_width_on
from fedperf_shared.workflow.vocabulary import Platform


def test_every_platform_has_a_claim_between_a_tenth_and_a_factor_of_a_hundred() -> None:
    assert set(HALF_WIDTHS) == set(Platform)
    assert all(math.log(1.1) < each < math.log(100) for each in HALF_WIDTHS.values())


def test_a_plan_on_several_platforms_has_the_widest_of_their_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claims = {platform: 1.0 + platform / 10 for platform in Platform}
    monkeypatch.setattr(public_start, "HALF_WIDTHS", claims)
    assert (
        half_width_on([Platform.DUCKDB, Platform.SPARK, Platform.DUCKDB]) == claims[Platform.SPARK]
    )
