"""The overhead of campaigns is measured on the same work, bare and profiled."""

from fedperf_simulations.campaign_overhead import overhead


def test_both_ways_do_the_work() -> None:
    bare, profiled = overhead(0.1, 1)
    assert min(bare, profiled) > 0.05
