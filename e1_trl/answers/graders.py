"""Makes the grader that a recipe names. Imports what a kind of answer needs when it is asked for."""

from e1_trl.answers.grade import Grader
from e1_trl.problems.arguments import ProblemArguments

# Of one program on one test. Wall time ends what sleeps; on a loaded machine, a right program waits, too.
MEMORY = 2**32  # bytes
OUTPUT = 2**24  # bytes
WALL = 4  # times the CPU time
PATIENCE = 10.0  # seconds of wall time besides


def make_grader(arguments: ProblemArguments, workers: int) -> Grader:
    """The grader of mathematics or of programs, which works in so many processes at a time.

    Raises:
        ValueError: this machine allows no sandbox for programs.
    """
    if arguments.grader == "mathematics":
        from e1_trl.answers.mathematics.grader import MathematicsGrader

        return MathematicsGrader(arguments.grading_time_limit, workers)
    from e1_trl.answers.programs.grader import ProgramGrader
    from e1_trl.answers.programs.sandbox.box import Limits
    from e1_trl.answers.programs.sandbox.command import SandboxError
    from e1_trl.answers.programs.sandbox.isolation import choose

    cpu = arguments.grading_time_limit
    try:
        isolation = choose()
    except SandboxError as error:
        raise ValueError(str(error)) from error
    limits = Limits(cpu=cpu, wall=WALL * cpu + PATIENCE, memory=MEMORY, output=OUTPUT)
    return ProgramGrader(limits, workers, isolation)
