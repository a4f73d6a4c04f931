"""What a person sees while a training runs: a line for each logged step, some rollouts as text, every warning once.

Everything that is logged goes to `report_to` and `trainer_state.json` as well; this only prints, in the main process.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerState

from e1_trl.rollout import Completion, ThinkingEnd

SHOWN = 600  # characters of a prompt, a thinking or a solution
ENDS = (ThinkingEnd.FORCED, ThinkingEnd.CLOSED, ThinkingEnd.EOS)

ACCURACIES = ("rewards/accuracy/mean", "rewards/accuracy_reward/mean")


def duration(seconds: float) -> str:
    """Seconds as a person would say them, such as `40 s`, `12 min` or `3 h 05 min`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def summary(logs: Mapping[str, float], prefix: str = "") -> list[str]:
    """The few numbers of a logged step that tell how it goes; `prefix` is `eval_` in an evaluation.

    `cut` is the share of completions without a finished solution: the policy stopped while it was thinking, or its
    solution budget ran out. Of those the latter are also counted as closed or forced.
    """
    log = {name.removeprefix(prefix): value for name, value in logs.items() if name.startswith(prefix)}
    cut = log["thinking/eos_ratio"] + log["solution/truncated_ratio"]
    accuracy = [f"accuracy {log[name]:.1%}" for name in ACCURACIES if log.get(name) is not None]
    return [
        "reward none" if log["reward"] is None else f"reward {log['reward']:.3f}",
        *accuracy[:1],
        f"closed {log['thinking/closed_ratio']:.0%} forced {log['thinking/forced_ratio']:.0%} cut {cut:.0%}",
        f"tokens {log['thinking/mean_tokens']:.0f} + {log['solution/mean_tokens']:.0f}",
    ]


def budget_summaries(logs: Mapping[str, float]) -> list[list[str]]:
    """The parts of a line for each budget that `BudgetEvaluation` has logged."""
    budgets = dict.fromkeys(name.split("/")[1] for name in logs if name.startswith("eval_budget/"))
    return [
        [
            f"budget {budget}",
            # There is none where the grader failed on everything.
            *([] if (right := logs.get(f"eval_budget/{budget}/accuracy")) is None else [f"accuracy {right:.1%}"]),
            f"forced {logs[f'eval_budget/{budget}/forced_ratio']:.0%}",
            f"tokens {logs[f'eval_budget/{budget}/thinking_tokens']:.0f} + "
            f"{logs[f'eval_budget/{budget}/solution_tokens']:.0f}",
        ]
        for budget in budgets
    ]


def transcripts(
    tokenizer: PreTrainedTokenizerBase,
    rollouts: Sequence[tuple[list[int], Completion]],
    rewards: Sequence[float],
    count: int | None,
) -> str:
    """Some rollouts as text, `‖` around what was forced: of each way to end the thinking one, then more.

    Args:
        tokenizer: reads their tokens.
        rollouts: the token ids of each prompt, and what followed.
        rewards: of each.
        count: how many to show; two if unset.
    """
    ends = [completion.thinking_end for _, completion in rollouts]
    order = sorted(range(len(ends)), key=lambda at: (ends[:at].count(ends[at]), ENDS.index(ends[at])))
    return "\n".join(
        f"--- thinking {ends[at]} after {completion.thinking_tokens} tokens, solution of {completion.solution_tokens}"
        f"{' and cut' * completion.truncated}, reward {rewards[at]:.3f}\n{_shortened(tokenizer, prompt)}\n"
        + "‖".join(_shortened(tokenizer, part) for part in _parts(completion))
        for at in order[: 2 if count is None else count]
        for prompt, completion in [rollouts[at]]
    )


def _parts(completion: Completion) -> list[list[int]]:
    """Thinking, forced tokens and solution; all of it in one, where nothing was forced."""
    ids, thought = completion.token_ids.tolist(), completion.thinking_tokens
    close = thought + completion.forced_tokens
    return [ids[:thought], ids[thought:close], ids[close:]] if completion.forced_tokens else [ids]


def _shortened(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    text = tokenizer.decode(ids)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} […] {text[-SHOWN // 2 :]}"


class Once(logging.Filter):
    """Lets every message through once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is new."""
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


class Progress(TrainerCallback):
    """Prints a line for every logged step, in the place of Transformers' progress bar and raw metrics.

    Seconds a step and the time left are those of steps alone, without evaluations and checkpoints.
    """

    def __init__(self) -> None:
        self._began = 0.0  # the step that runs
        self._steps: list[float] = []  # seconds of every step of this process
        self._shown = 0  # how many of them the last line was about

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._steps.append(time.monotonic() - self._began)

    def on_log(
        self, args: Any, state: TrainerState, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        step = f"step {state.global_step}/{state.max_steps}"
        if "train_runtime" in logs:  # which may hold the metrics of steps that no line was about, too
            print(f"trained {len(self._steps)} steps in {duration(logs['train_runtime'])}", flush=True)
        elif "reward" in logs:
            recent = self._steps[self._shown :]
            self._shown = len(self._steps)
            left = (state.max_steps - state.global_step) * sum(self._steps) / len(self._steps)
            pace = [f"{sum(recent) / len(recent):.1f} s/step", f"{duration(left)} left"]
            print(" | ".join([step, *summary(logs), *pace]), flush=True)
        elif "eval_reward" in logs:
            print(" | ".join([step, "evaluation", *summary(logs, "eval_")]), flush=True)
        for parts in budget_summaries(logs):
            print(" | ".join([step, *parts]), flush=True)
