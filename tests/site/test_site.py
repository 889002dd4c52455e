"""The site from small figures and notebooks: what it shows, and says about damaged ones."""

import errno
import json
import re
import subprocess
import sys
import tempfile

import bs4
import nbformat
import pytest
from matplotlib.figure import Figure

from lib import files, provenance
from lib.companion import claims, record
from lib.site import build, mathml
from lib.site.__main__ import main

PNG = (
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
).decode()
INDEX = """
[01_x]
question = "Why?"
paper = "A"
minutes = { demo = 0.3 }
[[01_x.figure]]
slug = "good"
scale = "demo"
sentence = "ends at {end:.1f}"
[[01_x.figure]]
slug = "lost"
scale = "demo"
sentence = "it is gone"
"""


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def save(slug, holds=True, scale="demo", measured=0.25):
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    claim = claims.Claim("c", "a < b & c", "paper A, Lemma 5", measured, "≤ 1", holds)
    numbers = {"end": record.Number(0.125, 0.01)}
    data = [{"name": "line", "source": "synthetic"}]
    run = record.Run(notebook="01_x", paper="A", scale=scale, parameters={"n": 3}, seeds=range(2))
    run.save(figure, slug, "Figure 1", "A <line>.", [claim], numbers, data)


def notebook(path, *outputs, count=1, source="x = 1"):
    cells = [
        nbformat.v4.new_markdown_cell(
            "# A title with $t^2$\n\n[other](01_x.ipynb) and [file](../data/README.md)"
        ),
        nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs)),
    ]
    write(path, nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


def shown(data, **metadata):
    return nbformat.v4.new_output("display_data", data, metadata=metadata)


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("figures", "runs", "notebooks"):
        monkeypatch.setenv(f"{name.upper()}_DIR", str(tmp_path / name))
    write(tmp_path / "figures" / "index.toml", INDEX)
    write(tmp_path / "notebooks" / "01_x.py", "x = 1\n")
    notebook(tmp_path / "notebooks" / "01_x.ipynb")
    return tmp_path


def built(place):
    """The site's pages by name, and what the build said."""
    troubles = build.build(place / "site")
    pages = {
        p.relative_to(place / "site").as_posix(): p.read_text("utf-8")
        for p in (place / "site").rglob("*.html")
    }
    return {
        name: bs4.BeautifulSoup(text, "html.parser") for name, text in pages.items()
    }, "\n".join(troubles)


def card(pages, title):
    (found,) = [li for li in pages["index.html"].select(".card") if li.h3.text == title]
    return found


def test_a_figure_is_shown_with_its_finding_claims_and_origin(place):
    save("good")
    pages, _ = built(place)
    found = card(pages, "Figure 1, paper A")
    assert "Ends at 0.1." in found.text  # the record's 0.125 as the sentence asks
    assert (
        "the claim holds" in found.text
        and "scale: demo" in found.text
        and "data: synthetic" in found.text
    )
    assert (
        found.img["alt"].startswith("Figure 1, paper A. One panel")
        and (place / "site" / found.img["src"]).exists()
    )
    page = pages["figures/good-demo.html"]
    assert "a < b & c" in page.text and "0.125 ± 0.01" in page.text
    assert (
        "make figures ARGS=01" in page.text and provenance.versions()["numpy"] in page.footer.text
    )
    assert page.find("a", href="../notebooks/01_x-demo.html")


def test_a_claim_that_fails_is_never_hidden(place):
    save("good", holds=False, measured=1.00000432)
    pages, _ = built(place)
    for found in (card(pages, "Figure 1, paper A"), pages["figures/good-demo.html"]):
        assert (
            "1 of 1 do not hold" in found.text
            and "Does not hold" in found.text
            and "1.000004" in found.text
        )
    (row,) = pages["ledger.html"].select("tbody tr")
    assert row["data-holds"] == "NO" and "NO" in row.text
    assert "0 of 1 in all" in pages["index.html"].text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.pop("claims"), "missing or unreadable: claims"),
        (lambda r: r.update(schema=0), "has schema 0, not 1"),
        (lambda r: r.pop("schema"), "has schema none, not 1"),
        (lambda r: r.update(claims=[{"id": "x"}, 3], data="none"), "2 of 2 claims"),
        (lambda r: r.update(numbers={"end": 3}), "missing or unreadable: end"),
        (lambda r: r["claims"][0].update(measured="much"), "1 of 1 claims"),
        (lambda r: r.pop("provenance"), "missing or unreadable: provenance"),
        (lambda r: r["claims"][0].update(statement=3), "1 of 1 claims"),
        (lambda r: r["claims"][0].update(interval=3), "1 of 1 claims"),
        (lambda r: r["claims"][0].update(interval=["a", "b"]), "1 of 1 claims"),
        (lambda r: r["claims"][0].update(catches=3), "1 of 1 claims"),
        (lambda r: r["claims"][0].update(number=["x"]), "1 of 1 claims"),
        (lambda r: r["data"][0].update(name=3), "1 of 1 data"),
        (lambda r: r.update(statements={"Lemma 1": 3}), "missing or unreadable: Lemma 1"),
    ],
)
def test_a_record_of_another_schema_says_so_on_its_card(place, change, said):
    save("good")
    path = place / "figures" / "demo" / "good.json"
    saved = json.loads(path.read_text("utf-8"))
    change(saved)
    write(path, saved)
    pages, troubles = built(place)
    assert said in card(pages, "Figure 1, paper A").text and said in troubles


@pytest.mark.parametrize("content", ["{", "[]", "3"])
def test_a_record_that_cannot_be_read_says_so_on_its_card(place, content):
    save("good")
    write(place / "figures" / "demo" / "good.json", content)
    pages, troubles = built(place)
    found = card(pages, "Good")
    assert "cannot be read" in found.text or "is not a record" in found.text
    assert found.img and "good-demo" in troubles


def test_a_figure_of_the_index_without_record_has_a_card_that_says_so(place):
    pages, troubles = built(place)
    found = card(pages, "Lost")
    assert "There is no record figures/demo/lost.json" in found.text and "No picture" in found.text
    assert (
        "lost-demo: There is no record" in troubles
        and (place / "site" / "figures" / "lost-demo.html").exists()
    )


def test_the_card_shows_the_largest_scale_and_leads_to_the_others(place):
    save("good")
    save("good", scale="desk")
    pages, _ = built(place)
    assert "scale: desk" in card(pages, "Figure 1, paper A").text
    assert pages["figures/good-desk.html"].find("a", href="good-demo.html")


def test_a_failed_cell_is_shown_as_failed(place):
    failed = nbformat.v4.new_output(
        "error", ename="ValueError", evalue="broken", traceback=["\x1b[31mValueError\x1b[0m"]
    )
    notebook(place / "runs" / "demo" / "01_x.ipynb", failed)
    pages, troubles = built(place)
    page = pages["notebooks/01_x-demo.html"]
    assert "This cell failed." in page.text and "executed here" in page.text
    for text in (page.main.text, pages["index.html"].text, troubles):
        assert "Code cell 1 failed: ValueError: broken" in text and "did not finish" in text


def test_a_run_that_stopped_half_way_is_not_shown_as_done(place):
    notebook(place / "runs" / "demo" / "01_x.ipynb", count=None)
    write(place / "runs" / "demo" / "01_x.json", {"source": files.sha256(b"x = 1\n")})
    pages, troubles = built(place)
    assert "1 of 1 code cells did not run" in pages["notebooks/01_x-demo.html"].text
    assert "did not finish" not in troubles and "has changed" not in troubles


def test_a_copy_of_an_older_source_says_so(place):
    notebook(place / "runs" / "demo" / "01_x.ipynb")
    write(place / "runs" / "demo" / "01_x.json", {"source": "0000"})
    assert "01_x-demo: The notebook has changed since this run." in built(place)[1]


def test_a_notebook_that_was_never_run_says_so(place):
    (place / "notebooks" / "01_x.ipynb").unlink()
    pages, troubles = built(place)
    assert (
        "It was never run" in pages["notebooks/01_x-demo.html"].text
        and troubles.count("never run") == 1
    )
    assert "It was never run" in pages["index.html"].text


@pytest.mark.parametrize("content", ["{", '{"cells": 3}', ""])
def test_a_damaged_copy_leaves_the_site_standing(place, content):
    write(place / "notebooks" / "01_x.ipynb", content)
    pages, troubles = built(place)
    assert (
        "The executed copy cannot be read" in pages["notebooks/01_x-demo.html"].text
        and "cannot be read" in troubles
    )


def test_outputs_neither_run_nor_load_anything(place):
    html = '<table><tr><td onclick="f()">1</td></tr></table><script src="https://a/b.js"></script>'
    notebook(
        place / "notebooks" / "01_x.ipynb",
        shown({"text/html": html + '<img src="https://a/b.png"><iframe src="x"></iframe>'}),
        shown({"application/javascript": "alert(1)", "text/plain": "plain words"}),
        shown(
            {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "VBox()"}
        ),
        shown({"text/latex": "$\\alpha$"}),
    )
    page = built(place)[0]["notebooks/01_x-demo.html"]
    cells = page.select_one(".cells")
    assert (
        not cells.select("script, iframe, img, [onclick]")
        and "https://a/b.png would be loaded" in cells.text
    )
    assert (
        cells.table.parent["tabindex"] == "0"
        and "plain words" in cells.text
        and "alert" not in cells.text
    )
    assert (
        "A widget stands here" in cells.text
        and "VBox" not in cells.text
        and len(cells.select("math")) == 2
    )
    assert page.details.summary.text.startswith("Code")  # folded


def test_a_picture_is_described_by_its_record(place):
    save("good")
    image = shown({"image/png": PNG})
    notebook(place / "notebooks" / "01_x.ipynb", image, source='run.save(figure, "good")\nfigure')
    alone = built(place)[0]["notebooks/01_x-demo.html"].img["alt"]
    notebook(place / "notebooks" / "01_x.ipynb", image, source="figure")
    other = built(place)[0]["notebooks/01_x-demo.html"].img["alt"]
    assert (
        alone.startswith("Figure 1, paper A. One panel")
        and other == "Picture drawn by the cell that begins: figure"
    )


def test_links_between_notebooks_lead_to_pages_and_others_are_undone(place):
    links = [a["href"] for a in built(place)[0]["notebooks/01_x-demo.html"].select(".cells a")]
    assert links == ["../notebooks/01_x-demo.html"]


def test_notes_beside_the_notebooks_are_on_the_site(place):
    write(place / "notebooks" / "proof.md", "# A proof of $t^2$\n\n[the page](01_x.ipynb#cell)")
    text = "# T\n\n[proof](proof.md#second), [none](gone.md), [bad](javascript:alert)"
    cells = [nbformat.v4.new_markdown_cell(text)]
    write(
        place / "notebooks" / "01_x.ipynb", nbformat.writes(nbformat.v4.new_notebook(cells=cells))
    )
    pages, _ = built(place)
    assert pages["index.html"].find("a", href="notes/proof.html")
    links = [a["href"] for a in pages["notebooks/01_x-demo.html"].select(".cells a")]
    assert links == ["../notes/proof.html"]
    assert pages["notes/proof.html"].find("a", href="../notebooks/01_x-demo.html")


def test_a_formula_that_shows_a_backslash_stops_the_build(place, capsys, monkeypatch):
    write(place / "notebooks" / "proof.md", "# P\n\n$\\big\\|W\\Big\\|$")
    assert "\\" not in built(place)[0]["notes/proof.html"].math.text
    monkeypatch.setattr(mathml, "convert", lambda *_, **__: "<math><mo>\\|</mo></math>")
    write(place / "notebooks" / "proof.md", "# P\n\n$\\|one that no page has\\|$")
    assert main(["--out", str(place / "site")]) == 1
    assert "notes/proof.html: a formula would be shown with \\|" in capsys.readouterr().err


def test_without_benchmarks_the_page_says_how_to_measure_them(place):
    pages, troubles = built(place)
    assert "make bench" in pages["benchmarks.html"].text and "bench" not in troubles
    assert not pages["benchmarks.html"].select(".troubles")


def test_what_a_record_says_is_never_run(place):
    save("good")
    path = place / "figures" / "demo" / "more.json"
    (place / "figures" / "demo" / "more.png").write_bytes(
        (place / "figures" / "demo" / "good.png").read_bytes()
    )
    bad = "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=alert(1)>"
    saved = json.loads((place / "figures" / "demo" / "good.json").read_text("utf-8"))
    saved["claims"][0] |= {"statement": bad, "holds": False, "source": bad, "bound": bad}
    write(path, saved | {"slug": "more", "caption": bad, "figure": bad, "alt": bad})
    svg = '<svg><a xlink:href="JavaScript:alert(1)"><text>t</text></a></svg>'
    notebook(place / "notebooks" / "01_x.ipynb", shown({"text/html": svg}))
    for page in built(place)[0].values():
        assert all(script.get("src") for script in page.select("script"))
        values = [str(v).lower() for tag in page.find_all(True) for v in tag.attrs.values()]
        assert not page.select("[onerror]")
        assert not [v for v in values if v.strip().startswith("javascript")]


def test_a_record_with_statements_is_a_ledger(place):
    save("good", holds=False)
    path = place / "figures" / "demo" / "good.json"
    saved = json.loads(path.read_text("utf-8"))
    about = {"number": "Lemma 9", "setting": "two", "seeds": 7, "kind": "form"}
    saved["claims"][0] |= about | {"interval": [0.1, 0.4]}
    weak = {"holds": True, "fails_if": ["a"], "catches": [], "remark": "$x$"}
    saved["claims"].append(saved["claims"][0] | weak)
    saved["statements"] = {
        "Lemma 9": {"topic": "t", "says": "says $t^2$ < 1", "why": ""},
        "Remark 1": {"topic": "r", "says": "defines", "why": "a definition"},
    }
    write(path, saved)
    failed, powerless, unchecked = built(place)[0]["ledger.html"].select("tbody tr")
    assert "says" in failed.text and failed.math and "< 1" in failed.text
    for words in ("Lemma 9", "form", "two", "7", "0.25 [0.1, 0.4]", "NO"):
        assert words in failed.text, words
    assert powerless["data-holds"] == "no power"
    assert unchecked["data-holds"] == "not checked" and "a definition" in unchecked.text


@pytest.mark.parametrize(
    ("content", "said"), [("{", "cannot be read"), ('[{"name": "x"}]', "cannot be read")]
)
def test_benchmarks_that_are_missing_or_damaged_are_said(place, content, said):
    write(place / "runs" / "bench.json", content)
    pages, troubles = built(place)
    assert said in pages["benchmarks.html"].text and said in troubles


def test_benchmarks_are_a_table_with_missed_bars_marked(place):
    entry = dict(
        ratio=2.0,
        spread=[1.5, 2.5],
        bar=3,
        sense="at least",
        ours="1 s",
        reference="2 s",
        note="n",
        holds=False,
    )
    write(
        place / "runs" / "bench.json",
        [{"name": "slow"} | entry, {"name": "quick"} | entry | {"holds": True}],
    )
    rows = built(place)[0]["benchmarks.html"].select("tbody tr")
    assert [(row.td.text, "fails" in row.get("class", [])) for row in rows] == [
        ("slow", True),
        ("quick", False),
    ]


def test_a_folder_that_is_no_site_is_left_alone(place, capsys):
    write(place / "mine" / "thesis.txt", "years of work")
    with pytest.raises(SystemExit):
        main(["--out", str(place / "mine")])
    assert (
        place / "mine" / "thesis.txt"
    ).read_text() == "years of work" and "something else" in capsys.readouterr().err
    assert main(["--out", str(place / "site")]) == 0 and main(["--out", str(place / "site")]) == 0
    assert not list(place.glob(".site-*")) and "open " in capsys.readouterr().out


@pytest.mark.parametrize("what", ["pages", "tables"])
def test_a_disk_that_takes_no_file_is_one_sentence(place, what, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", "somewhere")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert main([what, "--out", str(place / "site")]) == 1
    assert capsys.readouterr().err == "lib.site: Read-only file system: somewhere\n"


def test_a_mistake_in_the_command_line_is_said_before_anything_heavy_is_loaded():
    command = [sys.executable, "-X", "importtime", "-m", "lib.site", "pictures"]
    done = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True)
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert done.returncode == 2 and "invalid choice: 'pictures'" in done.stderr
    assert "argparse" in loaded and not loaded & {"nbconvert", "matplotlib", "numpy", "numba"}


def test_the_whole_site_is_small_and_every_figure_is_on_it(whole_site):
    known = [
        f"{path.stem}-{path.parent.name}.html"
        for path in (files.ROOT / "figures").glob("d*/*.json")
    ]
    assert sum(path.stat().st_size for path in whole_site.rglob("*")) < 30e6
    assert known and all((whole_site / "figures" / name).exists() for name in known)


@pytest.fixture(scope="module")
def whole_pages(whole_site):
    """The pages of the whole site by path, parsed: without colours of code, without formulas.

    Nine tags of ten are theirs, and nothing is asked of them; what names or loads anything stays.
    """
    colours = re.compile(r'<span class="\w+">([^<]*)</span>')
    formulas = re.compile(r"<math((?!</math>|\b(?:id|href|src)=).)*</math>", re.DOTALL)
    return {
        path: bs4.BeautifulSoup(
            formulas.sub("", colours.sub(r"\1", path.read_text("utf-8"))), "html.parser"
        )
        for path in whole_site.rglob("*.html")
    }


def test_pages_have_what_readers_and_their_tools_need(whole_pages):
    for path, page in whole_pages.items():
        assert (
            page.html["lang"] == "en"
            and page.title.text
            and page.find("meta", {"name": "viewport"})
        ), path
        assert (
            len(page.select("h1")) == 1 and page.main and page.nav and page.footer.text.strip()
        ), path
        assert all(image["alt"].strip() for image in page.select("img")), path
        assert all(label.find(["input", "select"]) for label in page.select("form label")), path
        assert len({tag["id"] for tag in page.select("[id]")}) == len(page.select("[id]")), path


def test_every_link_of_the_whole_site_leads_somewhere(whole_site, whole_pages):
    for path, page in whole_pages.items():
        for tag, name in [(t, n) for n in ("href", "src") for t in page.select(f"[{n}]")]:
            target = tag[name]
            if target.startswith("data:"):
                continue
            if re.match("https?:", target):
                assert tag.name == "a", f"{path}: {target} would be loaded from elsewhere"
            elif target.startswith("#"):
                assert page.find(id=target[1:]), f"{path}: {target}"
            else:
                assert (path.parent / target).exists(), f"{path}: {target}"
    for sheet in whole_site.glob("*.css"):
        assert not re.search(r"url\(|@import", sheet.read_text("utf-8"))


def test_an_undecided_claim_is_grey_and_counted_apart(place):
    save("good", holds=False)
    path = place / "figures" / "demo" / "good.json"
    saved = json.loads(path.read_text("utf-8"))
    saved["claims"][0]["verdict"] = "undecided"
    saved["claims"] += [
        saved["claims"][0] | {"id": "lost", "verdict": "not reproduced"},
        saved["claims"][0] | {"id": "won", "verdict": "reproduced", "holds": True},
    ]
    write(path, saved)
    pages = built(place)[0]
    for found in (card(pages, "Figure 1, paper A"), pages["figures/good-demo.html"]):
        badges = {badge["class"][1]: badge.text for badge in found.select(".badge")}
        assert badges["holds"] == "1 of 3 claims hold"
        assert badges["fails"] == "1 of 3 do not hold"
        assert badges["open"] == "1 of 3 undecided"
        (open_,) = found.select("p.open")
        assert "Undecided:" in open_.text and len(found.select("p.fails")) == 1
    rows = pages["ledger.html"].select("tbody tr")
    assert [row["data-holds"] for row in rows] == ["undecided", "NO", "yes"]
    assert "fails" not in rows[0]["class"]
    assert "1 of 3 in all" in pages["index.html"].text
