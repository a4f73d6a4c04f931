"""How a training went, from the log that it left."""

import json
from pathlib import Path

import pytest

from e1_trl.provenance import Provenance
from e1_trl.report.training_log import PANELS, TrainingLog

STEPS = [
    {"step": 1, "reward": 0.25, "reward/forced": 0.1, "thinking/mean_tokens": 60.0, "loss": 0.0},
    {"step": 2, "reward": 0.5, "thinking/mean_tokens": 50.0, "loss": 0.0},
]
VALIDATION = {"step": 2, "eval_budget/32+32/accuracy": 0.5, "eval_budget/32+32/mean_tokens": 40.0}
SUMMARY = {"step": 3, "train_runtime": 9.0, "train_loss": 0.1, "reward": 0.75}  # with what the last step left over
MADE = Provenance("abc", "2026-01-31", "a machine", (42,))


def run_folder(folder: Path, *entries: dict[str, float]) -> Path:
    MADE.write(folder)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries}))
    return folder


def test_a_log_is_a_json_and_a_picture_with_a_panel_for_each_group_of_metrics(tmp_path: Path) -> None:
    later = {"step": 2, "eval_budget/32+32/mean_tokens": 40.0, "eval_budget/64+32/accuracy": 0.75}
    run_folder(tmp_path, *STEPS, VALIDATION, later, SUMMARY)
    (drawn := tmp_path / "drawn").mkdir()
    assert set(TrainingLog.read(tmp_path).write(drawn, "nano-training.v2")) == set(drawn.iterdir())
    assert sorted(file.name for file in drawn.iterdir()) == ["nano-training.v2.json", "nano-training.v2.png"]
    written = json.loads((drawn / "nano-training.v2.json").read_text())
    assert list(written) == ["provenance", "steps", "validation"] and written["provenance"]["seeds"] == [42]
    read = [(entry["step"], entry["reward"], entry["reward/forced"]) for entry in written["steps"]]
    assert read == [(1, 0.25, 0.1), (2, 0.5, None)] and written["validation"] == [VALIDATION, later]

    figure = TrainingLog.read(tmp_path).draw()
    assert [axis.get_title() for axis in figure.axes] == [*PANELS, "validation accuracy at budget"]
    reward, forced = figure.axes[0].lines
    assert (list(reward.get_xdata()), list(reward.get_ydata())) == ([1, 2], [0.25, 0.5])
    assert (forced.get_label(), list(forced.get_xdata())) == ("reward/forced", [1])
    assert [line.get_label() for line in figure.axes[-1].lines] == ["32+32", "64+32"]
    assert len(TrainingLog.read(run_folder(tmp_path, *STEPS)).draw().axes) == len(PANELS)


@pytest.mark.parametrize(
    ("entries", "missing", "wrong"),
    [
        (STEPS, "trainer_state.json", r"no .*trainer_state\.json: it is written when"),
        (STEPS, "provenance.json", r"no .*provenance\.json, which a training writes"),
        ([SUMMARY], None, "logs no step; train with"),
    ],
)
def test_a_run_without_its_log_or_what_made_it_is_refused(
    tmp_path: Path, entries: list[dict[str, float]], missing: str | None, wrong: str
) -> None:
    run_folder(tmp_path, *entries)
    if missing is not None:
        (tmp_path / missing).unlink()
    with pytest.raises(ValueError, match=wrong):
        TrainingLog.read(tmp_path)
