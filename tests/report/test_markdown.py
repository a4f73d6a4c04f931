"""Tables, and their place in a document."""

from pathlib import Path

import pytest

from e1_trl.report.markdown import replace_section, table

DOCUMENT = "# Title\n\n<!-- one -->\nold\n<!-- /one -->\nbetween\n<!-- two -->\n<!-- /two -->\nend\n"


def test_a_table_has_a_line_for_its_header_and_one_a_row() -> None:
    assert table(("a", "b"), [("1", "2"), ("x|y", "")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n| x\\|y |  |\n"


def test_a_section_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(DOCUMENT)
    replace_section(document, "one", "new\nlines\n")
    replace_section(document, "two", "more\n")
    new = DOCUMENT.replace("old\n", "new\nlines\n").replace("<!-- two -->\n", "<!-- two -->\nmore\n")
    assert document.read_text() == new and list(tmp_path.iterdir()) == [document]


@pytest.mark.parametrize("content", ["", "<!-- /one -->\n<!-- one -->\n", "<!-- ones -->\n<!-- /ones -->"])
def test_a_document_without_the_section_is_named_and_left_alone(tmp_path: Path, content: str) -> None:
    document = tmp_path / "document.md"
    document.write_text(content)
    with pytest.raises(ValueError, match=r"document\.md has no section between the lines <!-- one --> and <!-- /one"):
        replace_section(document, "one", "new\n")
    assert document.read_text() == content
