r"""Evaluates one model at every thinking budget, against every baseline, on one benchmark.

    e1 eval --model MODEL --benchmark math500 --budgets 512+1024 1024+1024 \
        --methods separate truncation s1 unconstrained

Thinking is sampled once per problem and sample, and forked at every budget. Stopped at any moment, the same command
resumes; with more budgets, methods, samples or problems, it extends what is there. Everything is checked before a
model is loaded, and what loads one is imported when one is needed.
"""

import sys
from collections.abc import Sequence

from e1_trl.atomic import StoreError
from e1_trl.evaluation.arguments import parse


def main(argv: Sequence[str] | None = None) -> None:
    """Evaluate, or say in one line what is wrong."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
        from e1_trl.evaluation.prepare import prepare
        from e1_trl.evaluation.start_engine import check_devices

        if arguments.base_url is None:
            check_devices(arguments.tensor_parallel_size, arguments.data_parallel_size)
        prepared = prepare(arguments)
    except (ValueError, OSError, StoreError) as error:
        sys.exit(f"e1 eval: {' '.join(str(error).split())}")
    from e1_trl.evaluation.evaluate import EvaluationError, evaluate

    try:
        evaluate(prepared)
    except (StoreError, EvaluationError, OSError) as error:
        sys.exit(f"e1 eval: {error}")


if __name__ == "__main__":
    main()
