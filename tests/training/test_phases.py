"""The seconds of a generation's phases: each second belongs to one."""

import time

import torch

from e1_trl.training.phases import SAMPLING, SYNC, Phases


def test_a_second_of_a_phase_inside_another_counts_once() -> None:
    phases = Phases(torch.device("cpu"))
    send = phases.measured(SYNC, lambda seconds: time.sleep(seconds))
    began = time.monotonic()
    send(0.02)
    with phases.measure(SAMPLING):
        send(0.2)
        time.sleep(0.02)
    whole = time.monotonic() - began
    metrics = phases.take()
    assert metrics["seconds/sync"] >= 0.22 and metrics["seconds/sampling"] >= 0.02
    assert sum(metrics.values()) <= whole
    assert phases.take() == {}


def test_a_phase_that_fails_counts_and_one_that_is_forgotten_does_not() -> None:
    phases = Phases(torch.device("cpu"))
    with phases.measure(SYNC):
        pass
    phases.forget()
    try:
        with phases.measure(SAMPLING):
            raise ValueError
    except ValueError:
        assert phases.take().keys() == {"seconds/sampling"}
