"""Records of libraries: off the terminal, in a file of the run, and shown if a command fails."""

import re
from pathlib import Path

import pytest
from conftest import BASE, python

from e1_trl.logs import FILE

LOGGING = """
import logging, sys, warnings
from pathlib import Path
from e1_trl.logs import route_logs, write_logs
route_logs()
library = logging.getLogger("somebody.library")
library.addHandler(logging.StreamHandler())  # as Transformers and DeepSpeed give themselves
library.propagate = False
logging.getLogger("vllm").warning("before the folder is known")
write_logs(Path(sys.argv[1]))
for _ in range(3):
    library.warning("again and again")
warnings.warn("a feature is deprecated")
library.error("an error")
logging.getLogger("vllm").error("Error parsing config for an/adapter")
logging.getLogger("e1_trl.rollout").warning("ours")
"""


def test_records_of_libraries_are_written_beside_the_run_once_each(tmp_path: Path) -> None:
    done = python("-c", LOGGING, tmp_path / "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "an error\nours\n")
    written = (tmp_path / "run" / FILE).read_text()
    assert "vllm: before the folder is known\n" in written and "UserWarning: a feature is deprecated" in written
    assert written.count("again and again") == 1 and "ours" not in written


def test_a_record_that_cannot_be_kept_ends_nothing(tmp_path: Path) -> None:
    wrong = "logging.getLogger('somebody').warning('%d', 'no number')\n"
    full = f"import e1_trl.logs\ne1_trl.logs._log._file = open('/dev/full', 'w')\n{wrong.replace('%d', '%s')}"
    done = python("-c", f"{LOGGING}{wrong}{full}print('goes on', flush=True)\nimport os\nos._exit(0)", tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "TypeError: %d format" in done.stderr and "OSError: [Errno 28]" in done.stderr


def test_a_bug_shows_what_libraries_logged_after_its_traceback(tmp_path: Path) -> None:
    done = python("-c", f"{LOGGING}\nraise KeyError('a bug')", tmp_path / "run")
    before, _, after = done.stderr.partition(f"what libraries logged last, all in {tmp_path / 'run' / FILE}:\n")
    assert before.endswith("KeyError: 'a bug'\n") and "again and again" in after
    done = python("-c", f"{LOGGING}\nsys.exit('one line')", tmp_path / "run")
    assert done.stderr == "an error\nours\none line\n"


def test_everything_is_on_the_terminal_on_demand(tmp_path: Path) -> None:
    done = python("-c", LOGGING, tmp_path / "run", E1_DEBUG="1")
    assert done.stderr.count("again and again") == 3 and "before the folder is known" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.engine
@pytest.mark.slow
def test_an_evaluation_with_the_real_engine_prints_nothing_of_vllms(
    nano_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = ["--dataset_name", nano_data, "--max_problems", 4, "--budgets", "8+8", "--methods", "separate"]
    words = ["--model", BASE, *problems, "--instruction", "", "--enforce_eager", "true", "--output", tmp_path / "run"]
    monkeypatch.delenv("VLLM_LOGGING_LEVEL")
    done = python("-m", "e1_trl.cli", "eval", *words)
    assert done.returncode == 0, done.stderr
    bar = re.compile(r"\d+/\d+|\?, ?\?|\d examples")
    said = [line for line in re.split(r"[\r\n]+", done.stderr) if line and not bar.search(line)]
    sampling = "sampling 1 times per problem, temperature 0.6, top_p 0.95"
    most = "4 answers by each method at each budget, of at most so many tokens: separate 17"
    assert said == [sampling, most, "starting vLLM"]
    assert "vllm." in (tmp_path / "run" / FILE).read_text()
