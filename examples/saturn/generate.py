"""Write satisfiability puzzles as JSON lines: 250 to train on and 50 others to validate on, in a second.

    python -m examples.saturn.generate 3 5 5        3 literals per clause, 5 variables, 5 clauses: runs/saturn/3-5-5

A clause has literals of different variables, and no puzzle has a clause twice. Each is made from one drawn assignment,
which satisfies it. The same numbers give the same puzzles.
"""

import json
import random
import sys
from pathlib import Path

from examples.saturn.clauses import satisfies

literals, variables, clauses = map(int, sys.argv[1:])
rng = random.Random(f"{literals} {variables} {clauses}")
names = [chr(ord("A") + index) for index in range(variables)]
rows = {}
while len(rows) < 300:
    assignment = "".join(rng.choices("01", k=variables))
    drawn = []
    while len(drawn) < clauses:
        clause = "".join(rng.choice(["", "!"]) + name for name in sorted(rng.sample(names, literals)))
        if clause not in drawn and satisfies(assignment, clause):
            drawn.append(clause)
    text = " & ".join(drawn)
    rows[text] = {"problem": text, "variables": variables, "assignment": assignment}

folder = Path(f"runs/saturn/{literals}-{variables}-{clauses}")
folder.mkdir(parents=True, exist_ok=True)
lines = [json.dumps(row) + "\n" for row in rows.values()]
(folder / "train.jsonl").write_text("".join(lines[:250]))
(folder / "test.jsonl").write_text("".join(lines[250:]))
print(f"wrote {len(lines)} puzzles to {folder}")
