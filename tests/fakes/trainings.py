"""What a training process is given to run instead of training; a child can import it."""

import os
import signal
import time

import numpy as np

from fedperf_client.learning.training_process import Arrays, TrainingTask

BUSY_SECONDS = 2.0


def its_process_and_noise(task: TrainingTask) -> Arrays:
    return (np.array([os.getpid()], np.float32), task.noise.gaussian(8).astype(np.float32))


def hung(task: TrainingTask) -> Arrays:
    task.store.touch()
    time.sleep(600)
    return ()


def killed(task: TrainingTask) -> Arrays:
    """By the kernel, the first time it is asked."""
    try:
        task.store.touch(exist_ok=False)
    except FileExistsError:
        return ()
    os.kill(os.getpid(), signal.SIGKILL)
    return ()


def failing(task: TrainingTask) -> Arrays:
    raise ZeroDivisionError(task.parameters.steps)


def busy(task: TrainingTask) -> Arrays:
    """Holds its interpreter, as featurizing many workloads does."""
    until = time.process_time() + BUSY_SECONDS
    while time.process_time() < until:
        pass
    return ()
