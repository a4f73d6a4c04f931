"""How a training went, from the log that it left."""

import json
from pathlib import Path

import pytest

from e1_trl import provenance
from e1_trl.provenance import Provenance
from e1_trl.report import training_log

STEPS = [
    {"step": 1, "reward": 0.25, "reward/forced": 0.1, "thinking/mean_tokens": 60.0, "loss": 0.0},
    {"step": 2, "reward": 0.5, "thinking/mean_tokens": 50.0, "loss": 0.0},
]
VALIDATIONS = [{"step": 2, "eval_budget/32+32/accuracy": 0.5, "eval_budget/32+32/mean_tokens": 40.0}]
SUMMARY = {"step": 3, "train_runtime": 9.0, "train_loss": 0.1}
MADE = Provenance("abc", "2026-01-31", "a machine", (42,))


def run_folder(folder: Path, *entries: dict[str, float]) -> Path:
    MADE.write(folder)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries}))
    return folder


def test_the_log_holds_training_steps_and_validations_apart(tmp_path: Path) -> None:
    log = training_log.read_log(run_folder(tmp_path, STEPS[0], STEPS[1], *VALIDATIONS, SUMMARY))
    assert [entry["reward"] for entry in log.steps] == [0.25, 0.5]
    assert [entry["reward/forced"] for entry in log.steps] == [0.1, None]
    assert log.validation == VALIDATIONS
    assert log.provenance == MADE


def test_metrics_that_the_last_logged_step_left_over_are_no_step(tmp_path: Path) -> None:
    log = training_log.read_log(run_folder(tmp_path, *STEPS, {**SUMMARY, "reward": 0.75}))
    assert [entry["step"] for entry in log.steps] == [1, 2]


def test_a_run_that_does_not_say_what_made_it_is_refused(tmp_path: Path) -> None:
    (run_folder(tmp_path, *STEPS) / provenance.FILE).unlink()
    with pytest.raises(SystemExit, match=r"no .*provenance\.json, which a training writes") as stopped:
        training_log.main([str(tmp_path), "--output", str(tmp_path / "drawn"), "--name", "x"])
    assert "\n" not in str(stopped.value) and not (tmp_path / "drawn").exists()


def test_each_panel_draws_the_metrics_that_were_logged(tmp_path: Path) -> None:
    figure = training_log.draw(training_log.read_log(run_folder(tmp_path, *STEPS, *VALIDATIONS)))
    assert [axis.get_title() for axis in figure.axes] == [*training_log.PANELS, "validation accuracy at budget"]
    reward, forced = figure.axes[0].lines
    assert (list(reward.get_xdata()), list(reward.get_ydata())) == ([1, 2], [0.25, 0.5])
    assert (forced.get_label(), list(forced.get_xdata())) == ("reward/forced", [1])
    assert [line.get_label() for line in figure.axes[-1].lines] == ["32+32"]
    assert len(training_log.draw(training_log.read_log(run_folder(tmp_path, *STEPS))).axes) == len(training_log.PANELS)


def test_json_and_picture_are_written_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(tmp_path, *STEPS)
    training_log.main([str(tmp_path), "--output", str(tmp_path / "drawn"), "--name", "nano-training.v2"])
    assert sorted(file.name for file in (tmp_path / "drawn").iterdir()) == [
        "nano-training.v2.json",
        "nano-training.v2.png",
    ]
    written = json.loads((tmp_path / "drawn" / "nano-training.v2.json").read_text())
    assert list(written) == ["provenance", "steps", "validation"] and len(written["steps"]) == 2
    assert written["provenance"]["commit"] == "abc" and written["provenance"]["seeds"] == [42]
    assert "2 steps, reward 0.250 to 0.500" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [(None, r"no .*trainer_state\.json: it is written when"), ([SUMMARY], "logs no step; train with")],
)
def test_a_run_without_a_log_is_one_line(tmp_path: Path, entries: list[dict[str, float]] | None, wrong: str) -> None:
    if entries is not None:
        run_folder(tmp_path, *entries)
    with pytest.raises(SystemExit, match=wrong) as stopped:
        training_log.main([str(tmp_path), "--output", str(tmp_path), "--name", "x"])
    assert "\n" not in str(stopped.value)
