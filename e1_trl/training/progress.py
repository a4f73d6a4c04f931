"""Output for a person who watches a training: a line for each logged step, and some rollouts as text.

Only the main process prints; `report_to` and `trainer_state.json` get all metrics.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerState

from e1_trl.budget import Budget
from e1_trl.errors import TROUBLESHOOTING
from e1_trl.rollout import Completion, ThinkingEnd, warn_of_eos
from e1_trl.training.arguments import GROSS

logger = logging.getLogger(__name__)

SHOWN = 600  # characters of a prompt, a thinking or a solution
# In the order of transcripts. A training refuses prompts that have closed the thinking.
ENDS = (ThinkingEnd.FORCED, ThinkingEnd.CLOSED, ThinkingEnd.EOS, ThinkingEnd.TOTAL)
ACCURACIES = ("rewards/accuracy/mean", "rewards/accuracy_reward/mean")
BUDGET = "eval_budget/"  # prefix of a validation's metrics
# Mean absolute difference of vLLM's and the trainer's log-probabilities of a token, in nats.
GAP = "sampling/sampling_logp_difference/mean"
FIRST = 5  # logged gaps that set the usual one of a run
RISE = 3.0  # times the largest of these


def summary(logs: Mapping[str, float], prefix: str = "") -> list[str]:
    """Summarize a logged step in a few numbers; `prefix` is `eval_` in an evaluation."""
    log = {name.removeprefix(prefix): value for name, value in logs.items() if name.startswith(prefix)}
    accuracies = (f"accuracy {log[name]:.1%}" for name in ACCURACIES if log.get(name) is not None)
    ends = " ".join(f"{end} {log[f'thinking/{end}_ratio']:.0%}" for end in ("closed", "forced", "eos"))
    return [
        "reward none" if log["reward"] is None else f"reward {log['reward']:.3f}",
        *[*accuracies][:1],
        f"{ends} truncated {log['solution/truncated_ratio']:.0%}",
        f"tokens {log['thinking/mean_tokens']:.0f} + {log['solution/mean_tokens']:.0f}",
    ]


def budget_summary(logs: Mapping[str, float], budget: str) -> list[str]:
    """Summarize a validation at one budget; the accuracy is missing if the grader failed on everything."""
    start = f"{BUDGET}{budget}/"
    return [
        f"budget {budget}",
        *(f"accuracy {value:.1%}" for name, value in logs.items() if name == f"{start}accuracy"),
        f"forced {logs[f'{start}forced_ratio']:.0%} eos {logs[f'{start}eos_ratio']:.0%}",
        f"tokens {logs[f'{start}thinking_tokens']:.0f} + {logs[f'{start}solution_tokens']:.0f}",
    ]


def warn_of_gap(history: Sequence[Mapping[str, Any]]) -> str | None:
    """Explain the last logged gap if it outgrows the first ones of the run, or is gross; `None` if it is usual.

    A gap that was explained before is explained again when it has doubled.
    """
    gaps = [entry[GAP] for entry in history if entry.get(GAP) is not None]
    bound = GROSS
    beyond = False
    for at, gap in enumerate(gaps):
        if at == FIRST:
            bound = RISE * max(gaps[:FIRST])
        if beyond := gap > bound:
            bound = 2 * gap
    if not beyond or GAP not in history[-1]:
        return None
    usual = f"; in this run's first generations it was at most {max(gaps[:-1][:FIRST]):.3g}" if len(gaps) > 1 else ""
    return (
        f"step {history[-1]['step']}: vLLM's log-probabilities differ from the trainer's by {gap:.3g} nats a token on "
        f"average{usual}: its precision is too low, or top_p, top_k, min_p or a penalty makes it sample from another "
        f"distribution than the trainer computes; {TROUBLESHOOTING}"
    )


def transcripts(
    tokenizer: PreTrainedTokenizerBase,
    rollouts: Sequence[tuple[list[int], Completion]],
    rewards: Sequence[float],
    count: int | None,
) -> str:
    """Write `count` rollouts (two if unset) as text: one for each end of the thinking, then more.

    A rollout is its prompt's ids and its completion. `‖` stands around forced tokens.
    """

    def shorten(text: str) -> str:
        return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} […] {text[-SHOWN // 2 :]}"

    ends = [completion.thinking_end for _, completion in rollouts]
    order = sorted(range(len(ends)), key=lambda at: (ends[:at].count(ends[at]), ENDS.index(ends[at])))
    shown = []
    for at in order[: 2 if count is None else count]:
        prompt, completion = rollouts[at]
        spans = completion.parts if completion.forced_tokens else [completion.token_ids.tolist()]
        shown += [
            f"--- thinking {ends[at]} after {completion.thinking_tokens} tokens, solution of "
            f"{completion.solution_tokens}{', truncated' * completion.truncated}, reward {rewards[at]:.3f}",
            shorten(tokenizer.decode(prompt)),
            "‖".join(shorten(tokenizer.decode(span)) for span in spans),
        ]
    return "\n".join(shown)


def columns_of(completions: Sequence[Completion], budgets: Sequence[Budget]) -> dict[str, list[Any]]:
    """Return the columns of completions that rewards receive and the table of completions shows."""
    return {
        "thinking_budget": [budget.thinking for budget in budgets],
        "thinking_end": [completion.thinking_end.value for completion in completions],
        "thinking_tokens": [completion.thinking_tokens for completion in completions],
        "solution_tokens": [completion.solution_tokens for completion in completions],
        "solution_truncated": [completion.truncated for completion in completions],
    }


def metrics_of(completions: Sequence[Completion], forks: int = 1) -> Iterator[tuple[str, float]]:
    """Yield the metrics of completions, which are logged as means over all; every `forks` of them share a thought.

    `thinking/sampled_tokens` counts a thought once, by its longest fork, so forks make it less than the mean.
    """
    lengths = [completion.thinking_tokens for completion in completions]
    for row, completion in enumerate(completions):
        yield "thinking/mean_tokens", completion.thinking_tokens
        yield "thinking/sampled_tokens", max(lengths[row - row % forks :][:forks]) / forks
        yield "solution/mean_tokens", completion.solution_tokens
        yield "solution/truncated_ratio", completion.truncated
        for end in ENDS:
            yield f"thinking/{end}_ratio", float(completion.thinking_end is end)


class Progress(TrainerCallback):
    """Prints a line for every logged step, in place of Transformers' progress bar and raw metrics.

    Seconds a step and the time left exclude evaluations and checkpoints.
    """

    def __init__(self) -> None:
        self._began = 0.0  # when the present step began
        self._steps: list[float] = []  # seconds of each step
        self._shown = 0  # steps that lines have covered
        self._warned = False  # of thoughts that end without an answer

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
        shares = [value for name, value in logs.items() if name.endswith("/eos_ratio")]
        if not self._warned and (warning := warn_of_eos(max(shares, default=0.0), step)):
            self._warned = True
            logger.warning(warning)
        if state.log_history and (warning := warn_of_gap(state.log_history)):
            logger.warning(warning)
        if "train_runtime" in logs:  # it may hold metrics of steps that no line covered, too
            print(f"trained {len(self._steps)} steps in {_duration(logs['train_runtime'])}", flush=True)
        elif "loss" in logs:
            recent = self._steps[self._shown :]
            self._shown = len(self._steps)
            left = (state.max_steps - state.global_step) * sum(self._steps) / len(self._steps)
            pace = [f"{sum(recent) / len(recent):.1f} s/step", f"{_duration(left)} left"]
            repeated = ["no new rollouts", f"loss {logs['loss']:.4f}", f"grad_norm {logs.get('grad_norm', 0.0):.3f}"]
            print(" | ".join([step, *(summary(logs) if "reward" in logs else repeated), *pace]), flush=True)
        elif "eval_reward" in logs:
            print(" | ".join([step, "evaluation", *summary(logs, "eval_")]), flush=True)
        for budget in dict.fromkeys(name.split("/")[1] for name in logs if name.startswith(BUDGET)):
            print(" | ".join([step, *budget_summary(logs, budget)]), flush=True)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))  # 3:05:00
