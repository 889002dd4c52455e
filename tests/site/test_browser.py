"""The site in a browser, from disk: else it is unreadable, too wide, or loads from
elsewhere.
"""

import os
import re
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("BROWSER_PATH") or next(
    filter(None, map(shutil.which, NAMES)), None
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
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OPEN = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
# A formula does not break: wherever it stands, its block scrolls and the page stays
# narrow.
LONG_FORMULAS = """() => {
  const formula = `<math><mi>${"x".repeat(300)}</mi></math>`;
  const blocks = [
    "p", "p > em", "blockquote > p", "ul > li", "ol > li > p", "dl > dd", "h1", "h2", "h3", "h4",
    "details > summary", "figure > figcaption", "div", "table > tbody > tr > td",
  ];
  for (const block of blocks) {
    const tags = block.split(" > ");
    const open = tags.map((tag) => `<${tag}>`).join("");
    const close = tags.reverse().map((tag) => `</${tag}>`).join("");
    document.querySelector("main").insertAdjacentHTML("beforeend", open + formula + close);
  }
}"""
DRAWN = """[...document.querySelectorAll('math, img')]
  .every((m) => m.getBoundingClientRect().height > 0)"""


@pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; apt-get install chromium brings one"
)
def test_pages_are_quiet_readable_narrow_and_the_ledger_filters(whole_site):
    from playwright.sync_api import sync_playwright

    def largest(pattern):
        return max(whole_site.glob(pattern), key=lambda path: path.stat().st_size)

    kinds = [
        largest("notebooks/*.html"),
        largest("figures/*.html"),
        *whole_site.glob("*.html"),
    ]
    with sync_playwright() as play:
        # Chromium's own sandbox cannot be set up inside many containers; only our
        # own files are opened.
        browser = play.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"], timeout=0
        )
        page = browser.new_page()
        complaints = []
        asked = []
        page.set_default_timeout(0)  # a busy machine may take its time
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "requestfailed", lambda request: complaints.append(f"failed: {request.url}")
        )
        page.on("request", lambda request: asked.append(request.url))
        for path in kinds:
            page.set_viewport_size({"width": 1280, "height": 900})
            page.goto(path.as_uri())
            if path.name == "ledger.html":
                assert page.evaluate("document.documentElement.scrollHeight") < 8000
            page.evaluate(OPEN)
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                assert page.evaluate(LOW_CONTRAST) == [], f"{path.name}, {theme}"
            assert page.evaluate(DRAWN), path.name
            page.set_viewport_size({"width": 360, "height": 900})
            assert page.evaluate(TOO_WIDE) == 0, path.name
            page.evaluate(LONG_FORMULAS)
            assert page.evaluate(TOO_WIDE) == 0, f"{path.name}, with long formulas"

        page.goto((whole_site / "ledger.html").as_uri())
        rows = page.locator("details.statement tbody tr")
        everything = rows.count()
        page.get_by_label("Verdict").select_option("fails")
        visible = page.locator("details.statement tbody tr:visible")
        failing = visible.count()
        assert (
            0 < failing < everything
            and failing
            == page.locator(".verdict.fails", has_text=re.compile("^fails$")).count()
        )
        assert page.locator("output").inner_text() == f"{failing} of {everything} rows"
        page.get_by_label("Words").fill("LEMMA 5")
        assert 0 < visible.count() < failing
        page.get_by_label("Words").fill("no such words")
        assert visible.count() == 0
        page.keyboard.press("Control+Home")
        page.reload()
        page.keyboard.press("Tab")
        assert (
            page.evaluate("document.activeElement.textContent") == "Skip to the content"
        )
        assert complaints == [] and all(
            url.startswith(("file:", "data:")) for url in asked
        )
        browser.close()
