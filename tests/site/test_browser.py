"""Tests of the site in a browser, opened from disk.

A failure means that it is too wide, loads from elsewhere, or has interactive pictures
that compute something else than the library.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import lib
from lib import files

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = os.environ.get("BROWSER_PATH") or next(
    filter(None, map(shutil.which, NAMES)), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; apt-get install chromium brings one"
)
STATIC = files.ROOT / "docs" / "static"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
START = [[1.5, 1.5], [-1.0, 1.0]]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Chromium's own sandbox cannot be set up inside many containers; only our own
        # files are opened.
        options = ["--no-sandbox", "--disable-gpu"]
        one = play.chromium.launch(executable_path=BROWSER, args=options, timeout=0)
        yield one
        one.close()


@pytest.fixture
def page(browser):
    """Return a page that collects its errors."""
    one = browser.new_page(viewport={"width": 1280, "height": 900})
    one.set_default_timeout(0)  # a busy machine may be slow
    one.complaints = []
    one.on("console", lambda message: one.complaints.append(message.text))
    one.on("pageerror", lambda error: one.complaints.append(str(error)))
    one.on("requestfailed", lambda request: one.complaints.append(request.url))
    one.on(
        "request",
        lambda request: (
            request.url.startswith(("file:", "data:", "blob:"))
            or one.complaints.append(request.url)
        ),
    )
    yield one
    one.close()


def living(page, picture):
    """Return a page with one interactive picture."""
    scripts = ("svg", "explainer", "mirror")
    page.set_content(f'<p><img src="data:,/{picture}" alt=""></p>')
    for name in scripts:
        page.add_script_tag(content=(STATIC / f"{name}.js").read_text("utf-8"))
    page.wait_for_selector(".living svg")


RULES = {"NGD": lib.NGD(0.02), "GD": lib.GD(0.5), "sign": lib.SignDescent(0.01)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("start", [START, [[0.3, -1.0], [1.2, 0.4]]])
def test_the_explainer_trains_as_the_library_does(page, rule, start):
    living(page, "turning.gif")
    ask = "([start, rule]) => attention.train(start, rule, [0, 1, 100])"
    found = np.array(page.evaluate(ask, [start, rule]))
    record = [0, 1, 100]
    history = lib.train(
        lib.two_examples(), RULES[rule], 100, record, start=np.array(start)[None]
    )
    np.testing.assert_allclose(found, history.W[0], rtol=0, atol=1e-9)


def test_the_explainer_has_the_librarys_tokens_scores_and_solution(page):
    living(page, "turning.gif")
    data = lib.two_examples()
    known = page.evaluate("attention")
    np.testing.assert_array_equal(known["X"], data.X[0])
    np.testing.assert_array_equal(known["z"], data.z[0])
    np.testing.assert_array_equal(known["scores"], lib.scores(data, data.u)[0])
    for norm in (2, np.inf):  # the rules' norms have one solution here
        W = lib.token_svm(data, norm=norm).W[0]
        np.testing.assert_allclose(known["W_mm"], W, atol=1e-6)


@pytest.mark.parametrize("p", [1.1, 1.5, 2.0, 3.0, 6.0])
def test_the_ball_touches_at_the_librarys_solution(page, p):
    living(page, "balls.svg")
    data = lib.two_examples()
    X = data.X[0].copy()
    X[0, 1] = 0.5, 0
    target = lib.token_svm(lib.token_set(X, data.y[0], data.z[0], data.u[0]), norm=p)
    found = page.evaluate("(p) => mirror.shortest(mirror.c, p)", p)
    np.testing.assert_allclose(found, target.W[0][:, 0], atol=1e-6)
    on_it = page.evaluate("(p) => mirror.circle(2, p).map((w) => mirror.norm(w, p))", p)
    np.testing.assert_allclose(on_it, 2, rtol=1e-12)


def centre(page, place):
    box = page.locator(place).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_arrow_is_dragged_and_turned_by_keys_and_time_moves_it(page):
    living(page, "turning.gif")
    handle = ".handle >> nth=0"
    x, y = centre(page, handle)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 150, y - 20, steps=4)
    page.mouse.up()
    moved = centre(page, handle)
    assert moved[0] < x - 40
    turned = page.locator(handle).get_attribute("aria-valuenow")
    page.locator(handle).focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator(handle).get_attribute("aria-valuenow") != turned
    page.locator("input[type=range]").fill("200")
    assert "step 10,000" in page.locator("output").inner_text()
    assert centre(page, handle) != moved


def test_play_ends_at_once_for_whoever_asks_for_less_motion(page):
    page.emulate_media(reduced_motion="reduce")
    living(page, "turning.gif")
    page.get_by_role("button", name="Play").click()
    assert "step 10,000" in page.locator("output").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_start_page_is_quiet_and_narrow_and_its_arrow_is_there(
    whole_site, page, width, theme
):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme)
    for name in (
        "index",
        "notebooks/00_attention_by_hand",
        "notebooks/30_mirror_descent",
        "ledger_a",
    ):
        page.goto((whole_site / f"{name}.html").as_uri())
        page.wait_for_function("!window.MathJax || MathJax.startup?.promise")
        assert page.evaluate(TOO_WIDE) <= 0, name
        if name != "ledger_a":
            assert page.locator(".living svg .handle").count() > 0, name
            assert not page.locator("img.still").is_visible(), name
    assert page.complaints == []


def found(site, page, words):
    """What the search of the site finds, best first."""
    page.goto((site / "search.html").as_uri() + f"?q={words}")
    page.wait_for_selector("#search-results li a")
    results = page.locator("#search-results li a")
    titles = results.all_inner_texts()
    page.complaints.clear()  # from disk a browser cannot fetch the excerpts of results
    return titles


TASKS = {  # what a visitor types: (the result to click, what its page says)
    "example+by+hand": ("Attention by hand", "softmax"),
    "try+it": ("Which token does attention", "uv run attention-dynamics 00"),
    "direction+error": ("The law of the margins", "direction error is"),
    "speed+on+pictures": ("Speed on pictures", "not reproduced"),
    "token_svm": ("lib.token_svm", "lib.token_svm("),
}


@pytest.mark.parametrize("words", TASKS)
def test_a_visitor_finds_by_search(whole_site, page, words):
    title, says = TASKS[words]
    titles = found(whole_site, page, words)
    (place, *_) = [k for k, shown in enumerate(titles[:10]) if title in shown] or [None]
    assert place is not None, titles[:10]
    page.locator("#search-results li a").nth(place).click()
    page.wait_for_selector("article h1")
    assert says in page.locator("article").inner_text()


FIRST = {  # the result that a visitor wants first
    "direction+error": "words.html#direction-error",
    "margin": "words.html#margin",
    "opt+token": "words.html#opt-token",
    "W_mm": "words.html#w-mm",
    "Figure+7": "figures/desk/fastrates_fig7.html",
    "token_svm": "api/lib.token_svm.html",
    "mirror+descent": "notebooks/30_mirror_descent.html",
    "own+optimiser": "readme.html#try-your-own-optimiser",
}


@pytest.mark.parametrize("words", FIRST)
def test_the_first_result_is_the_one_that_is_looked_for(whole_site, page, words):
    found(whole_site, page, words)
    place = page.locator("#search-results li a").first.get_attribute("href")
    assert FIRST[words] in place


def test_no_table_of_the_start_page_is_cut_on_a_phone(whole_site, page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto((whole_site / "index.html").as_uri())
    page.wait_for_function("window.MathJax?.startup?.promise")
    cut = "[...document.querySelectorAll('.table-wrapper')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
    assert page.evaluate(f"{cut}.length") == 0


def test_pages_lead_on_and_back(whole_site, page):
    first = whole_site / "notebooks" / "00_attention_by_hand.html"
    page.goto(first.as_uri())
    page.locator("a.next-page").click()
    page.wait_for_url("**/10_fixed_decoder.html")
    page.locator("a.prev-page").click()
    page.wait_for_url("**/00_attention_by_hand.html")
    assert page.complaints == []


def test_the_claims_of_a_ledger_are_filtered(whole_site, page):
    page.goto((whole_site / "ledger_a.html").as_uri())
    rows = page.locator("table.claims tbody tr:visible")
    everything = rows.count()
    field = page.get_by_label("Filter the claims")
    field.fill("LEMMA 5")
    some = rows.count()
    assert 0 < some < everything
    assert page.locator(".filter output").inner_text().startswith(f"{some} of ")
    field.fill("no such words")
    assert rows.count() == 0


def test_print_cuts_no_code_and_opens_what_is_folded(whole_site, page):
    page.goto((whole_site / "notebooks" / "00_attention_by_hand.html").as_uri())
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 900})
    closed = "[...document.querySelectorAll('details')].filter((fold) => !fold.open)"
    assert page.evaluate(f"{closed}.length") == 0
    cut = "[...document.querySelectorAll('pre')].filter((pre) => pre.scrollWidth > pre.clientWidth + 1)"
    assert page.evaluate(f"{cut}.length") == 0


HOSTILE = {
    "caption": r"<script>alert(1)</script> a < b $\href{javascript:alert(2)}{click}$",
    "statement": r"<img src=x onerror=alert(3)> & $x < y$ [x](javascript:alert(4))",
}


def test_what_a_record_says_is_shown_and_never_run(page, tmp_path, monkeypatch):
    folder = tmp_path / "figures" / "demo"
    folder.mkdir(parents=True)
    shutil.copy(files.ROOT / "figures" / "index.toml", folder.parent)
    given = files.ROOT / "figures" / "demo" / "fastrates_by_hand.json"
    saved = json.loads(given.read_text("utf-8"))
    saved["caption"] = HOSTILE["caption"]
    saved["claims"][0]["statement"] = HOSTILE["statement"]
    (folder / given.name).write_text(json.dumps(saved))
    shutil.copy(given.with_suffix(".png"), folder)
    monkeypatch.setenv("FIGURES_DIR", str(folder.parent))
    place = files.ROOT / "docs" / "build.py"
    spec = importlib.util.spec_from_file_location("build", place)
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    collected = tmp_path / "collected"
    build.collect(collected)
    source = tmp_path / "source"
    shutil.copytree(collected / "figures" / "demo", source)
    text = "# T\n\n$\\href{javascript:alert(5)}{x}$\n\n```{toctree}\nfastrates_by_hand\n```\n"
    (source / "index.md").write_text(text)
    # Alone it has no page to lead to, which is a warning.
    command = [sys.executable, "-m", "sphinx", "-q", "-c", str(files.ROOT / "docs")]
    subprocess.run([*command, str(source), str(tmp_path / "site")], check=True)
    said = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    for name in ("index", "fastrates_by_hand"):
        page.goto((tmp_path / "site" / f"{name}.html").as_uri())
        page.wait_for_function("window.MathJax?.startup?.promise")
        page.wait_for_timeout(500)
        assert page.locator("article mjx-container").count() > 0, name
        assert page.locator("article [href^=javascript]").count() == 0, name
    words = page.locator("article").inner_text()
    assert "<script>alert(1)</script> a < b" in words
    assert "<img src=x onerror=alert(3)>" in words
    assert said == []
