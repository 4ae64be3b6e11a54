"""Tests of the privacy audit in a small form: it accepts real noise and detects its absence."""

import dataclasses
from pathlib import Path

import pytest

from fedperf_simulations.experiments import privacy_audit
from fedperf_simulations.experiments.privacy_audit import EXPERIMENT, MECHANISMS, REAL
from fedperf_simulations.harness.experiment import Settings

QUICK = {
    "step at the tangent": 40,
    "directed report": 600,
    "synthetic batch": 40,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {
        mechanism.name: dataclasses.replace(
            mechanism, looks=QUICK[mechanism.name], silent_looks=0, epsilon=1.0
        )
        for mechanism in MECHANISMS
        if mechanism.name in QUICK
    }
    monkeypatch.setattr(privacy_audit, "MECHANISMS", tuple(chosen.values()))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.usefixtures("small")
def test_privacy_audit_accepts_real_noise_and_detects_missing_noise(tmp_path: Path) -> None:
    outcome = EXPERIMENT.run(Settings(seed=0, out=tmp_path))
    found = {(row["mechanism"], row["noise"]): row for row in outcome.rows}
    for mechanism in QUICK:
        name = f"{mechanism}, epsilon 1"
        assert not found[name, REAL]["caught"]
        assert found[name, "none"]["caught"]
    targets = [target for target in outcome.targets if "a quarter" not in target.what]
    assert len(targets) == 2 * len(QUICK)
    assert all(target.holds for target in targets)


@pytest.mark.slow
def test_audited_epsilon_claim_matches_the_accountant() -> None:
    for mechanism in (MECHANISMS[1], MECHANISMS[-1]):
        assert 0.99 * mechanism.epsilon < privacy_audit.claimed(mechanism) <= mechanism.epsilon
