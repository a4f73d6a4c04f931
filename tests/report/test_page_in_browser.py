"""The page of a report in a real browser: it opens, moves as it says, stays text, and can be used without a mouse."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fabricated import HOSTILE, SOLVED, STEPS, evaluated, report, stored, thought
from test_page import trained

from e1_trl.report.command import main

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install -e '.[dev]'")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python, of .[dev]")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium"),
]
Open = Callable[..., "playwright.Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # root has none
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def usual(folder: Path) -> Path:
    return report(folder / "usual", "--training", str(trained(folder / "run")))


@pytest.fixture(scope="module")
def several(folder: Path) -> Path:
    """The page with two more problems, right only at budget 16, where one answer is forced and one is not."""
    own = folder / "several"
    folders = []
    for model, solved in SOLVED.items():
        table = evaluated(model, (*solved, 4, 99))
        right = table["thinking_budget"].eq(16).fillna(False) & table["problem"].isin([4, 5])
        outcome = table["outcome"].mask(table["problem"].isin([4, 5]), "wrong").mask(right, "correct")
        folders.append(str(stored(own / model, table.assign(outcome=outcome))))
    main([*folders, "--output", str(own)])
    return own / "report.html"


@pytest.fixture
def opened(browser: "playwright.Browser") -> Iterator[Open]:
    """Open a page, which must write nothing to its console and request nothing."""
    contexts, said = [], []

    def open_page(file: Path, address: str = "", **options: object) -> "playwright.Page":
        contexts.append(context := browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: request.url.startswith("file:") or said.append(request.url))
        page.goto(f"file://{file}{address}")
        settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def settled(page: "playwright.Page") -> None:
    """Wait until the page is drawn."""
    page.wait_for_selector("#models section")
    page.wait_for_timeout(50)


def until(page: "playwright.Page", holds: str) -> None:
    """Wait until an expression holds; the page's policy forbids playwright's own way."""
    for _ in range(100):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    raise TimeoutError(holds)


def shown(page: "playwright.Page", what: str) -> list[str]:
    return page.locator(what).all_text_contents()


def press(page: "playwright.Page", *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    settled(page)


def address(page: "playwright.Page") -> str:
    return str(page.evaluate("location.hash"))


def test_the_cut_moves_through_one_thought_and_the_solution_changes_with_it(usual: Path, opened: Open) -> None:
    page = opened(usual, "#p=1&b=8")
    beyond = ["".join(STEPS[8:38]) + "</think>", "".join(STEPS[8:20]) + "</think>"]
    assert shown(page, "#models .beyond") == beyond
    assert shown(page, ".thought .close") == ["‖</think>‖"] * 2
    assert shown(page, ".solution") == ["so", "so"]
    page.locator("#budget").fill("1")
    settled(page)
    assert address(page) == "#p=1&b=16+8"
    assert shown(page, ".thought")[0].startswith(thought(16) + "‖</think>‖" + STEPS[16])
    assert shown(page, ".solution") == ["so", "\\boxed{1}"]
    assert shown(page, "#models .badge") == ["✗ wrong", "✓ right"]
    press(page, "ArrowRight", "ArrowRight")
    assert shown(page, "#models .beyond") == [] and shown(page, "#models .close") == []
    assert shown(page, ".facts")[0] == "38 tokens of thinking, closed naturally · 4 of solution · read: right"


def test_one_look_at_the_grid_tells_who_needs_which_budget(usual: Path, opened: Open) -> None:
    page = opened(usual)
    rows = page.locator("#grid tbody tr").all_inner_texts()
    assert ["".join(row.split()) for row in rows] == ["0✗✗✗✗✓✓✓✓", "1✗✗✓✓✗✓✓✓", "2✗✗✗✗✗✗✗✗", "3✗✓✓✓✗✗✓✓"]
    page.get_by_label("3, base, 16+8: right").click()
    settled(page)
    assert address(page) == "#p=3&b=16+8" and shown(page, "#problem-title") == ["Problem 3 "]
    assert page.locator("#grid [aria-current]").count() == 2  # of both models


def test_an_address_is_a_state_that_can_be_sent(usual: Path, opened: Open) -> None:
    page = opened(usual, "#p=3&b=16&m=e1")
    assert shown(page, "#models h3") == ["e1 ✗ wrong"]
    assert page.locator("#grid tbody tr").first.locator("button").count() == 4
    page.evaluate("location.hash = '#p=1&b=16+8&by=s1&f=lost'")
    until(page, "document.querySelectorAll('#models h3').length === 2")
    settled(page)
    assert page.locator("#method").input_value() == "s1" and page.locator("#filter").input_value() == "lost"
    assert "Wait" in shown(page, ".thought")[0] and shown(page, "#models .beyond") == []
    opened(usual, "#p=99&b=no&m=%E0%A4%A&by=__proto__&f=constructor")  # nothing of it is there


def test_keys_go_through_problems_budgets_and_methods(usual: Path, opened: Open) -> None:
    page = opened(usual, "#p=0&b=8")
    press(page, "j", "j", "j", "j", "k")
    assert address(page) == "#p=2&b=8+8"
    press(page, "ArrowRight", "m")
    assert address(page) == "#p=2&b=16+8&by=s1"
    page.locator("#budget").focus()
    press(page, "j")
    assert address(page) == "#p=3&b=16+8&by=s1"
    page.locator(".thought").first.focus()
    press(page, "ArrowRight")  # scrolls it
    assert address(page) == "#p=3&b=16+8&by=s1"
    page.locator("#grid [aria-current]").first.focus()
    press(page, "k", "ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "2, base, unlimited: wrong"


@pytest.mark.parametrize(
    ("chosen", "left"),
    [("never", "02"), ("escapes", "2"), ("differ", "013"), ("forced", "5"), ("lost", "45")],
)
def test_filters_leave_the_problems_that_they_name(several: Path, opened: Open, chosen: str, left: str) -> None:
    page = opened(several, f"#p=0&f={chosen}")
    assert "".join(shown(page, "#grid tbody th")) == left
    assert shown(page, "#count") == [f"{len(left)} of 6"]


def test_a_column_sorts_by_its_numbers(usual: Path, opened: Open) -> None:
    page = opened(usual)
    table = page.get_by_role("region", name="Table: Accuracy", exact=True)
    table.get_by_role("button", name="tokens", exact=True).click()
    tokens = [float(text) for text in table.locator("tbody td:nth-child(6)").all_text_contents()]
    assert tokens == sorted(tokens, reverse=True) and tokens[0] > tokens[-1]
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("tokens")


def test_the_command_can_be_copied(usual: Path, opened: Open) -> None:
    page = opened(usual, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    until(page, "document.getElementById('copied').textContent !== ''")
    command = page.locator("#copy").get_attribute("data-command")
    assert command and command.startswith("e1 report ") and "--training" in command
    assert shown(page, "#copied")[0] in ("copied", command)


def test_rollouts_of_the_training_are_shown_step_by_step(usual: Path, opened: Open) -> None:
    page = opened(usual)
    page.locator("#step").fill("2")
    until(page, "document.getElementById('rollouts').textContent.includes('Q21')")
    assert shown(page, "#rollouts pre")[0] == "Q21\n\nthink‖</think>‖<b>so</b>"
    assert page.locator("#rollouts b").count() == 0


def test_what_a_model_has_written_stays_text(folder: Path, opened: Open) -> None:
    hostile = report(folder / "hostile", texts=HOSTILE, e1=(99,) * len(HOSTILE))
    page = opened(hostile, viewport={"width": 400, "height": 800})
    markup, _, *long, signs = HOSTILE
    named = "⟨U+001B⟩[31mred⟨U+001B⟩[0m ⟨U+202E⟩gnp.exe⟨U+202C⟩ ⟨U+2066⟩in⟨U+2069⟩ a⟨U+200B⟩b⟨U+0000⟩ ⟨U+FEFF⟩"
    cut = [f"{text[:16_000]} … {len(text) - 16_000} characters more" for text in long]
    for i, written in enumerate((markup, named, *cut, signs)):
        page.evaluate(f"location.hash = '#p={i}&b=8'")
        until(page, f"document.getElementById('question').textContent === 'Which is {i}?'")
        settled(page)
        assert shown(page, ".solution") == [written]
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        assert page.locator(".solution img, .solution script, .solution b").count() == 0
    assert page.title() == "e1 on sums"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_names_and_roles_are_in_order(usual: Path, opened: Open, scheme: str) -> None:
    page = opened(usual, color_scheme=scheme, bypass_csp=True)  # the checker is a script of its own
    violations = axe.Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in violations] == []
