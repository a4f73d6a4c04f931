"""Check every quoted number, and count those in no quote.

    python -m experiments.quotes                  all documents
    python -m experiments.quotes docs/nano.md     and list the numbers of this one that are in no quote

Exits with 1 if a document does not say what the results say.
"""

import sys

from experiments.quotes.check import QUOTES, ROOT, failures, uncovered
from experiments.results import Results

HISTORY = {"docs/LOG.md"}


def main(named: list[str]) -> None:
    results = Results()
    wrong = []
    pages = {str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")} - HISTORY
    for document in sorted({*QUOTES, *pages}):
        text = (ROOT / document).read_text()
        quotes = list(QUOTES[document](results)) if document in QUOTES else []
        wrong += failures(text, document, quotes)
        left = uncovered(text, quotes)
        print(f"{document}: {len(quotes)} quotes; {len(left)} numbers in none")
        if document in named:
            print(*(f"    … {words} …" for words in left), sep="\n")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])
