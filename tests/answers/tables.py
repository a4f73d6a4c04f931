"""Tables of tests as text."""


def read_table(text: str) -> dict[str, dict[str, list[str]]]:
    """Read a table: headings, below each, indented, `label: item | item`, which goes on in lines indented further."""
    table = dict[str, dict[str, list[str]]]()
    for line in filter(None, text.splitlines()):
        if not line.startswith(" "):
            labels = table[line] = {}
            continue
        items = line.strip()
        if not line.startswith(" " * 8):
            label, _, items = items.partition(": ")
            labels[label] = []
        labels[label] += items.split(" | ")
    return table
