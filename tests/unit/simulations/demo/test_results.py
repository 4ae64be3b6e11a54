"""Tests of lost demo releases: not sent, not received, or sent as noise alone."""

from typing import Any

from fedperf_simulations.demo.results import lost

SLOTS = ("report-0-0", "update-0-0", "report-1-0", "update-1-0")
LEFT = {"state": "confirmed", "because": None, "kind": "residual_report"}


def test_demo_release_confirmed_or_sent_last_is_not_counted_as_lost() -> None:
    releases = [{**LEFT, "slot": slot} for slot in SLOTS]
    releases[3] |= {"state": "handed out", "kind": "tangent_update"}  # its receipt comes later
    assert lost(SLOTS, releases, "daemon is up") == ()


def test_demo_release_not_received_is_counted_as_lost_with_reason() -> None:
    releases: list[dict[str, Any]] = [
        {"slot": "report-0-0", "state": "withheld", "because": "too_late", "kind": "x"},
        {"slot": "update-0-0", "state": "sealed", "because": None, "kind": "tangent_update"},
        {**LEFT, "slot": "report-1-0", "state": "handed out"},
    ]
    assert lost(SLOTS, releases, "") == (
        "update-1-0 (never made)",
        "report-0-0 (too_late)",
        "update-0-0 (sealed)",
        "report-1-0 (no receipt)",
    )


def test_demo_release_sent_as_noise_alone_is_counted_as_lost() -> None:
    log = "[warning] a report leaves as noise alone\n[warning] a model update leaves as noise alone"
    releases = [{**LEFT, "slot": slot} for slot in SLOTS]
    assert lost(SLOTS, releases, log) == ("2 left as noise alone",)
