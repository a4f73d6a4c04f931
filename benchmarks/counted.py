"""An engine whose work is counted."""

from typing import Any

from vllm import LLM


class Counted:
    """Counts the steps of an engine and keeps the requests that it has finished, since it was made or `reset`."""

    def __init__(self, llm: LLM):
        self.steps = 0
        self.finished: list[Any] = []
        step = llm.llm_engine.step

        def counted_step() -> list[Any]:
            self.steps += 1
            outputs = step()
            self.finished += [output for output in outputs if output.finished]
            return outputs

        llm.llm_engine.step = counted_step

    def reset(self) -> None:
        """Count from zero again."""
        self.steps, self.finished = 0, []

    @property
    def sampled_tokens(self) -> int:
        """Tokens that the finished requests have sampled."""
        return sum(len(output.outputs[0].token_ids) for output in self.finished)


def prefill_tokens(outputs: list[Any]) -> int:
    """Tokens of the requests' prompts that were not in the prefix cache."""
    return sum(len(output.prompt_token_ids) - output.num_cached_tokens for output in outputs)
