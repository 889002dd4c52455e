"""The site in a browser, from disk: quiet, nothing remote, filters, contrast, small screens."""

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("BROWSER_PATH") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; apt-get install chromium brings one"
)

# Every text element with its colour and the ground it stands on, as a contrast
# ratio (WCAG 2, 1.4.3).
LOW_CONTRAST = """() => {
  const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return channels(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3);
  };
  const low = [];
  for (const element of document.body.querySelectorAll("*")) {
    const text = (node) => node.nodeType === 3 && node.textContent.trim();
    const own = [...element.childNodes].some(text);
    if (!own || !element.getClientRects().length) continue;
    const own_light = light(channels(getComputedStyle(element).color));
    const pair = [own_light, light(ground(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    const words = `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
    if (!(ratio >= 4.5)) low.push(`${words}: ${ratio.toFixed(2)}`);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Chromium's own sandbox cannot be set up inside many containers; only our
        # own files are opened.
        chromium = play.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


class Visit:
    """One page, open; everything that it complained of or asked of the network."""

    def __init__(self, browser, path: Path, width=1280, theme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme
        )
        self.page, self.complaints, self.requests = self.context.new_page(), [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "requestfailed", lambda request: self.complaints.append(f"failed: {request.url}")
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def kinds(folder):
    """One page of every kind, the largest, so that it holds most of what there is."""
    every = [
        sorted(folder.glob(pattern), key=lambda p: p.stat().st_size)
        for pattern in ("*/*.html", "*.html")
    ]
    notebooks = [path for path in every[0] if path.parent.name == "notebooks"]
    figures = [path for path in every[0] if path.parent.name == "figures"]
    return [*every[1], notebooks[-1], figures[-1]]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_load_quietly_from_disk_and_can_be_read(browser, whole_site, theme):
    for path in kinds(whole_site):
        with Visit(browser, path, theme=theme) as visit:
            visit.page.evaluate(
                "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
            )
            assert visit.page.evaluate(LOW_CONTRAST) == [], f"{path.name}, {theme}"
            assert visit.complaints == [], path.name
            assert all(url.startswith(("file:", "data:")) for url in visit.requests), path.name


def test_nothing_is_wider_than_a_phone(browser, whole_site):
    for path in kinds(whole_site):
        with Visit(browser, path, width=360) as visit:
            over = visit.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over == 0, f"{path.name} is {over} pixels too wide"


def test_pictures_and_formulas_are_drawn(browser, whole_site):
    with Visit(browser, kinds(whole_site)[-2]) as visit:
        assert visit.page.evaluate(
            "[...document.images].every((i) => i.decode && i.complete && i.naturalWidth > 0)"
        )
        heights = visit.page.evaluate(
            "[...document.querySelectorAll('math')].map((m) => m.getBoundingClientRect().height)"
        )
        assert heights and min(heights) > 0


def visible(page):
    return page.eval_on_selector_all(
        "#ledger tbody tr", "rows => rows.filter(r => !r.hidden).map(r => r.innerText)"
    )


def test_the_ledger_filters_by_verdict_paper_and_words(browser, whole_site):
    with Visit(browser, whole_site / "ledger.html") as visit:
        page = visit.page
        everything = visible(page)
        page.get_by_label("Verdict").select_option("NO")
        failing = visible(page)
        assert 0 < len(failing) < len(everything) and all("NO" in row for row in failing)
        assert page.locator("output").inner_text() == f"{len(failing)} of {len(everything)} rows"
        page.get_by_label("Verdict").select_option("")
        page.get_by_label("Paper").select_option("B")
        of_b = visible(page)
        assert of_b and all(row.startswith("B") for row in of_b)
        page.get_by_label("Words").fill("SPECTRAL start")
        narrow = visible(page)
        assert 0 < len(narrow) < len(of_b) and all("spectral" in row.lower() for row in narrow)
        page.get_by_label("Words").fill("no such words")
        assert visible(page) == [] and visit.complaints == []


def test_the_ledger_sorts_by_keyboard_numbers_as_numbers(browser, whole_site):
    with Visit(browser, whole_site / "ledger.html") as visit:
        button = visit.page.get_by_role("button", name="seeds")
        button.focus()
        for order in ("ascending", "descending"):
            visit.page.keyboard.press("Enter")
            cells = visit.page.eval_on_selector_all(
                "#ledger [data-name=seeds]", "cells => cells.map(c => c.innerText)"
            )
            numbers = [float(cell) for cell in cells if cell.strip()]
            assert (
                numbers == sorted(numbers, reverse=order == "descending") and len(set(numbers)) > 1
            )
            assert visit.page.locator("th[aria-sort]").get_attribute("aria-sort") == order


def test_the_keyboard_reaches_the_content_first(browser, whole_site):
    with Visit(browser, whole_site / "index.html") as visit:
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.textContent") == "Skip to the content"
        visit.page.keyboard.press("Enter")
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate(
            "document.querySelector('main').contains(document.activeElement)"
        )
