import numpy as np
import pytest

from fedperf_shared.errors import ConfigurationError, InvalidInputError
from fedperf_simulations.federation import job_kernel
from fedperf_simulations.federation.job_kernel import JobKernel, JobPoints, fit_kernel


def some_points(seed: int, count: int = 40) -> JobPoints:
    rng = np.random.default_rng(seed)
    return JobPoints(
        rng.choice(["grep", "sort"], count),
        rng.choice(["small", "large"], count),
        rng.uniform(-1, 1, (count, 5)),
    )


def test_job_kernel_covariance_is_symmetric_and_positive_semidefinite() -> None:
    covariance = JobKernel().covariance(some_points(1))
    np.testing.assert_allclose(covariance, covariance.T)
    assert np.linalg.eigvalsh(covariance)[0] > -1e-9


def test_job_kernel_covariance_is_larger_for_same_job_and_machine() -> None:
    features = np.zeros((4, 5))
    features[1:, 0] = 0.3
    points = JobPoints(
        np.array(["grep", "grep", "grep", "sort"]), np.array(["a", "a", "b", "b"]), features
    )
    first = JobKernel().covariance(points)[0]
    assert first[0] > first[1] > first[2] > first[3] > 0


def test_job_kernel_gradients_match_finite_differences() -> None:
    points, logs = some_points(2, 8), JobKernel(length=0.7, joint_length=1.3).logs()
    _, slopes = job_kernel._covariance_and_slopes(logs, points)
    for number, slope in enumerate(slopes):
        step = np.zeros(len(logs))
        step[number] = 1e-6
        up, down = (
            job_kernel._covariance_and_slopes(logs + way * step, points)[0] for way in (1, -1)
        )
        np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-7)


def test_fit_kernel_increases_the_likelihood_of_observed_residuals() -> None:
    truth = JobKernel(level=0.05, job=0.05, job_size=2.0, single=0.01)
    points = some_points(3, 120)
    covariance = truth.covariance(points) + 0.003 * np.eye(120)
    residuals = np.linalg.cholesky(covariance) @ np.random.default_rng(3).standard_normal(120)
    fitted = fit_kernel(points, residuals)

    def misfit(kernel: JobKernel) -> float:
        system = kernel.covariance(points) + 0.003 * np.eye(120)
        return float(residuals @ np.linalg.solve(system, residuals) + np.linalg.slogdet(system)[1])

    assert misfit(fitted) < misfit(JobKernel()) - 1
    assert fitted.job_size > JobKernel().job_size
    assert fitted.single < JobKernel().single


def test_job_points_and_kernels_with_invalid_values_are_refused() -> None:
    names = np.array(["a", "b"])
    with pytest.raises(InvalidInputError, match="one row"):
        JobPoints(names, names, np.zeros((3, 5)))
    with pytest.raises(InvalidInputError, match="at least 2"):
        JobPoints(names, names, np.zeros((2, 1)))
    with pytest.raises(InvalidInputError, match="not finite"):
        JobPoints(names, names, np.full((2, 5), np.nan))
    with pytest.raises(ConfigurationError, match="job_size"):
        JobKernel(job_size=0.0)
    with pytest.raises(ConfigurationError, match="length"):
        JobKernel(length=float("nan"))
