"""`e1_trl.train`, which also writes down what TRL measures of its own phases, and hands to online trackers only.

The variable `E1_SMOKE_SECONDS` names the file: a line of JSON for each phase that the main process leaves.
"""

import json
import os
from pathlib import Path

from trl.extras.profiling import ProfilingContext

from e1_trl import train

FILE = "E1_SMOKE_SECONDS"


def write_down(file: Path) -> None:
    """Have every phase of TRL's add its name, the steps that were made before it, and its seconds to a file."""

    def log(context: ProfilingContext, duration: float) -> None:
        if context.is_main_process:
            with file.open("a") as lines:
                print(json.dumps({"name": context.name, "step": context.step, "seconds": duration}), file=lines)

    ProfilingContext._log_metrics = log


if __name__ == "__main__":
    write_down(Path(os.environ[FILE]))
    train.main()
