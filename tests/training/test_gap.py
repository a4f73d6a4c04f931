import logging

import pytest

from e1_trl.training.logprob_gap import FIRST, LogprobGap


def seen(caplog: pytest.LogCaptureFixture, gaps: list[float]) -> list[int]:
    """The steps that were warned of."""
    gap = LogprobGap()
    with caplog.at_level(logging.WARNING):
        for step, value in enumerate(gaps):
            gap.see(value, step)
    return [int(record.getMessage().split(":")[0].removeprefix("step ")) for record in caplog.records]


def test_a_gap_is_judged_against_the_first_ones_of_its_run(caplog: pytest.LogCaptureFixture) -> None:
    usual = [0.01, 0.02, 0.015, 0.01, 0.02]
    assert len(usual) == FIRST
    assert seen(caplog, [*usual, 0.05, 0.07, 0.07, 0.15]) == [6, 8]  # above 0.06, then above twice what was said
    assert "in this run's first generations it was at most 0.02" in caplog.records[0].getMessage()


def test_a_gap_that_rounding_cannot_explain_is_warned_of_from_the_start(caplog: pytest.LogCaptureFixture) -> None:
    assert seen(caplog, [0.3, 0.3, 0.3, 0.3, 0.3, 0.3]) == [0]
