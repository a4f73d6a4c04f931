"""The Codeforces rating of what was evaluated, among the people who took part in the contests.

    e1 elo --fetch standings.json --problems problems.jsonl --population ratings.json
    e1 elo runs/evaluations/*codeforces* --standings standings.json --output elo.json

The first asks Codeforces for the contests, once and slowly; stopped at any moment, the same command resumes. The second
asks nobody. How a rating is computed stands in `experiments.table1.ratings`.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from e1_trl.atomic import StoreError, write_atomically
from e1_trl.budget import Budget

if TYPE_CHECKING:
    import pandas as pd

    from experiments.table1.ratings import Population, Standings

API = "https://codeforces.com/api"
DELAY = 2.0  # seconds between two requests, the API's own rule
HEADER = ("model", "method", "budget", "rating", "95% interval", "percentile", "contests", "problems", "attempts")


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, `sys.argv` if `argv` is None."""
    parser = argparse.ArgumentParser(
        prog="e1 elo",
        usage="e1 elo FOLDER ... --standings FILE [--output FILE]\n"
        "       e1 elo --fetch FILE (--contests ID ... | --problems FILE) [--population FILE]",
        description="Rate what was evaluated on problems of Codeforces, or fetch the contests that this takes.",
    )
    parser.add_argument("folders", type=Path, nargs="*", help="folders of finished evaluations")
    parser.add_argument("--standings", type=Path, metavar="FILE", help="the contests, as --fetch has written them")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON file for the ratings; unset: only printed")
    parser.add_argument("--fetch", type=Path, metavar="FILE", help="write contests into it, beside those it has")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--contests", type=int, nargs="+", metavar="ID", help="their numbers")
    which.add_argument("--problems", type=Path, metavar="FILE", help="JSON lines with problem_id or id, as 1971A")
    parser.add_argument(
        "--population", type=Path, metavar="FILE", help="JSON object: people by rating; unset: what --fetch FILE has"
    )
    parser.add_argument("--api", default=API, metavar="ADDRESS", help="Codeforces, or a copy of it")
    parser.add_argument("--delay", type=float, default=DELAY, help="seconds between two requests")
    arguments = parser.parse_args(argv)
    fetching = arguments.fetch is not None
    if fetching == bool(arguments.folders):
        parser.error("name either folders of evaluations or a file to --fetch")
    if fetching != bool(arguments.contests or arguments.problems):
        parser.error("--fetch goes with --contests or with --problems, and they with it")
    if fetching == (arguments.standings is not None) or (arguments.output if fetching else arguments.population):
        parser.error("folders go with --standings and --output, --fetch with --population")
    if not arguments.api.startswith(("http://", "https://")):
        parser.error(f"--api {arguments.api!r} is no address that begins with http:// or https://")
    if arguments.delay < 0:
        parser.error(f"--delay is {arguments.delay:g} seconds; it must be 0 or more")
    return arguments


def fetch(arguments: argparse.Namespace) -> None:
    """Ask for the contests that the file does not have, and write it after each.

    Raises:
        StoreError, ValueError, OSError: one line about what is wrong; what was fetched before is in the file.
    """
    # Libraries of seconds: not for reading the command line.
    from tqdm import tqdm

    from experiments.table1.codeforces import Codeforces, RefusalError
    from experiments.table1.ratings import read_standings, write_standings

    file, source = arguments.fetch, Codeforces(arguments.api.rstrip("/"), arguments.delay)
    wanted = arguments.contests or contests_of(arguments.problems)
    known = read_standings(file) if file.exists() else None
    if known is not None and known.source != source.address:
        raise ValueError(f"{file} is from {known.source}, not from {source.address}; fetch into another file")
    if arguments.population is not None:
        population = read_population(arguments.population)
    elif known is not None:
        population = known.population
    else:
        raise ValueError(f"{file} is a new file, and needs the ratings of all people: name them as --population")
    contests = {} if known is None else dict(known.contests)
    if known is None or known.population != population:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_standings(file, contests.values(), population, source.address)
    for number in tqdm([each for each in dict.fromkeys(wanted) if each not in contests], "Fetching", unit="contest"):
        try:
            contests[number] = source.contest(number)
        except RefusalError as refusal:
            tqdm.write(f"e1 elo: contest {number} is left out: {refusal}", file=sys.stderr)
        else:
            write_standings(file, contests.values(), population, source.address)
    print(f"{file} has {len(contests)} contests")


def contests_of(problems: Path) -> list[int]:
    """The contests that the problems of a file are from.

    Raises:
        ValueError: a row is none of Codeforces.
    """
    from experiments.table1.ratings import problem_parts

    found = []
    for number, line in enumerate(filter(str.strip, problems.read_text().split("\n")), 1):
        try:
            row = json.loads(line)
            found.append(problem_parts(str(row["problem_id"] if "problem_id" in row else row["id"]))[0])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{problems}, row {number}: {error!r}; a row has problem_id or id, as 1971A") from error
    return found


def read_population(file: Path) -> "Population":
    """How many people have each rating.

    Raises:
        ValueError: it is no object of counts, or all are 0.
    """
    try:
        population = {int(rating): int(count) for rating, count in json.loads(file.read_text()).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f'{file} is no object of counts by rating, as {{"1500": 61}}: {error}') from error
    if sum(population.values()) < 1:
        raise ValueError(f"{file} counts nobody")
    return population


@dataclass(frozen=True)
class Row:
    """The rating of one method at one budget, of one model.

    Attributes:
        rating: the mean over the contests that count, with its 95% interval over contests.
        percentile: percent of all people whose rating is lower.
        contests: how many count.
        problems: how many of theirs were asked.
        attempts: at each problem that count.
        skipped: contests that the standings lack, and that do not count.
        unknown: problems that their contests lack, and that do not count.
        ratings: that in each contest that counts.
    """

    model: str
    method: str
    thinking_budget: int | None
    solution_budget: int | None
    rating: float
    ci_low: float
    ci_high: float
    percentile: float
    contests: int
    problems: int
    attempts: int
    skipped: tuple[int, ...]
    unknown: tuple[str, ...]
    ratings: dict[int, int]

    @property
    def budget(self) -> Budget:
        return Budget(self.thinking_budget, self.solution_budget)


def rate(answers: "pd.DataFrame", standings: "Standings") -> list[Row]:
    """The rows of a table of graded answers, in its order.

    Raises:
        ValueError: a problem is none of Codeforces, or the standings have none of their contests.
    """
    from e1_trl.report.samples import CELL

    return [_rate(cell, standings) for _, cell in answers.groupby(CELL, sort=False, dropna=False)]


def _rate(cell: "pd.DataFrame", standings: "Standings") -> Row:
    import pandas as pd

    from experiments.table1 import ratings as elo

    tried = attempts(cell)
    counted = [standings.contests[contest] for contest in tried if contest in standings.contests]
    if not counted:
        raise ValueError(f"the standings have none of the contests {_listed(tried)}; `e1 elo --fetch` adds contests")
    ratings = {contest.id: elo.rating(contest, tried[contest.id]) for contest in counted}
    known = {f"{contest.id}{index}": index in contest.problems for contest in counted for index in tried[contest.id]}
    estimate, first = elo.overall(list(ratings.values())), cell.iloc[0]
    return Row(
        model=first["model"],
        method=first["method"],
        thinking_budget=None if pd.isna(first["thinking_budget"]) else int(first["thinking_budget"]),
        solution_budget=None if pd.isna(first["solution_budget"]) else int(first["solution_budget"]),
        rating=estimate.mean,
        ci_low=estimate.low,
        ci_high=estimate.high,
        percentile=elo.percentile(estimate.mean, standings.population),
        contests=len(ratings),
        problems=sum(known.values()),
        attempts=min(elo.ATTEMPTS, cell["sample"].nunique()),
        skipped=tuple(contest for contest in tried if contest not in standings.contests),
        unknown=tuple(problem for problem, there in known.items() if not there),
        ratings=ratings,
    )


def attempts(cell: "pd.DataFrame") -> dict[int, dict[str, list[bool]]]:
    """Whether the samples of each problem have passed, in order, by contest and index. What is ungraded has not.

    Raises:
        ValueError: a problem is none of Codeforces (`problem_id`), or there twice.
    """
    from e1_trl.answers.grade import Outcome
    from experiments.table1.ratings import problem_parts

    tried: dict[int, dict[str, list[bool]]] = {}
    for _, answers in cell.sort_values(["problem", "sample"]).groupby("problem"):
        first = answers.iloc[0]
        name = first["problem_id"]
        try:
            contest, index = problem_parts(name if isinstance(name, str) else "")
        except ValueError as error:
            raise ValueError(f"{first['benchmark']}, problem {first['problem']}: {error}") from error
        if index in tried.setdefault(contest, {}):
            raise ValueError(f"{first['benchmark']} has the problem {contest}{index} twice")
        tried[contest][index] = (answers["outcome"] == Outcome.CORRECT).tolist()
    return tried


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def report(arguments: argparse.Namespace) -> None:
    """Rate, print, and write if asked to.

    Raises:
        StoreError, ValueError, OSError: one line about what is wrong.
    """
    from e1_trl.report import samples
    from e1_trl.report.provenance import Provenance
    from experiments.table1.ratings import read_standings

    standings = read_standings(arguments.standings)
    columns = ["seed", *samples.CELL, "problem", "problem_id", "sample", "outcome"]
    answers = samples.join([samples.read(folder, columns) for folder in arguments.folders])
    rows, benchmark = rate(answers, standings), answers["benchmark"].iloc[0]
    show(rows, benchmark)
    if arguments.output is not None:
        record = {
            "provenance": asdict(Provenance.here(map(int, answers["seed"].unique()))),
            "benchmark": benchmark,
            "standings": {"source": standings.source, "fetched": standings.fetched},
            "rows": [asdict(row) for row in rows],
        }
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(arguments.output, lambda path: path.write_text(text))
        print(f"wrote {arguments.output}")


def show(rows: Sequence[Row], benchmark: str) -> None:
    """Print the table, and below it what does not count."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from e1_trl.report.document import WIDTH

    table = Table(*HEADER, title=Text(f"{benchmark}: Codeforces rating"))
    for row in rows:
        interval = f"{row.ci_low:.0f} – {row.ci_high:.0f}"
        counts = (row.contests, row.problems, row.attempts)
        cells = (row.model, row.method, row.budget, f"{row.rating:.0f}", interval, f"{row.percentile:.1f}", *counts)
        table.add_row(*(Text(str(each)) for each in cells))
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(table)
    if skipped := sorted({contest for row in rows for contest in row.skipped}):
        print(f"contests that the standings lack, and that do not count: {_listed(skipped)}")
    if unknown := sorted({problem for row in rows for problem in row.unknown}):
        print(f"problems that their contests lack, and that do not count: {_listed(unknown)}")


def main(argv: list[str] | None = None) -> None:
    """Fetch contests, or rate what was evaluated, or say in one line what is wrong."""
    arguments = parse(argv)
    try:
        (report if arguments.fetch is None else fetch)(arguments)
    except (StoreError, ValueError, OSError) as error:
        sys.exit(f"e1 elo: {' '.join(str(error).split())}")


if __name__ == "__main__":
    main()
