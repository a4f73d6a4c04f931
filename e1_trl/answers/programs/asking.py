"""Prompts that ask for a program: those of the paper's base models and of LiveCodeBench."""

STARTER = "starter_code"  # LiveCodeBench's column; empty where the program reads stdin

# From the card of nvidia/AceReason-Nemotron-14B.
ACEREASON = (
    "\n\n{task}Please place the solution code in the following format:\n```python\n# Your solution code here\n```"
)
HEADER = "Solve the problem starting with the provided function header.\n\nFunction header:\n```\n{starter}\n```\n\n"

# LiveCodeBench's template, as in the authors' data preparation, which puts no space between the problem and "###".
DEEPCODER = (
    "You are an expert Python programmer. You will be given a question (problem specification) and will generate a "
    "correct Python program that matches the specification and passes all tests.\n\n{problem}### Format: {form}\n"
    "```python\n{starter}\n```\n\n### Answer: (use the provided format with backticks)\n\n"
)
FUNCTION = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
STDIN = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows. Ensure that when the python program runs, it reads the "
    "inputs, runs the algorithm and writes output to STDOUT."
)


def ask_program(problem: str, starter: str | None, style: str) -> str:
    """Return the prompt for a program.

    Args:
        problem: the task.
        starter: the header of the function to write, "" for a program on stdin, or None if unknown.
        style: `acereason` or `deepcoder`; the latter returns the problem unchanged if `starter` is None.
    """
    if style == "deepcoder":
        if starter is None:
            return problem
        form = FUNCTION if starter else STDIN
        return DEEPCODER.format(problem=problem, form=form, starter=starter or "# YOUR CODE HERE")
    task = HEADER.format(starter=starter) if starter else "Write Python code to solve the problem. "
    return problem + ACEREASON.format(task=task)
