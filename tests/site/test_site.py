"""Tests of the site.

A failure means that a figure has no page, a link leads nowhere, or an error is
published.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import bs4
import nbformat
import numpy as np
import pytest
from PIL import Image

import lib
from companion.tables import figures
from lib import files

DOCS = files.ROOT / "docs"


def loaded(name):
    """Import a module of docs/, which is not a package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = loaded("build")


@pytest.fixture
def figure(tmp_path, monkeypatch):
    """Copy one figure into a folder of its own, and return the path of its record."""
    folder = tmp_path / "figures" / "demo"
    folder.mkdir(parents=True)
    for ending in (".png", ".json"):
        name = f"fastrates_by_hand{ending}"
        shutil.copy(files.ROOT / "figures" / "demo" / name, folder)
    shutil.copy(files.ROOT / "figures" / "index.toml", folder.parent)
    monkeypatch.setenv("FIGURES_DIR", str(folder.parent))
    return folder / "fastrates_by_hand.json"


def test_a_notebook_without_outputs_is_named(tmp_path):
    cell = nbformat.v4.new_code_cell("x = 1")
    path = tmp_path / "99_empty.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    with pytest.raises(ValueError, match="99_empty.ipynb: no stored outputs"):
        build.notebook(path, [])


def test_a_compressed_picture_has_the_same_colours(tmp_path):
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (300, 300, 4), dtype=np.uint8)
    colours[..., 3] = 255
    Image.fromarray(colours).save(tmp_path / "opaque.png", compress_level=0)
    see_through = colours.copy()
    see_through[0, 0, 3] = 100
    Image.fromarray(see_through).save(tmp_path / "see_through.png", compress_level=0)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    build.compress(tmp_path)
    opaque = tmp_path / "opaque.png"
    assert opaque.stat().st_size < 0.8 * len(before[opaque])
    np.testing.assert_array_equal(np.asarray(Image.open(opaque)), colours[..., :3])
    other = tmp_path / "see_through.png"
    assert other.read_bytes() == before[other]


def test_a_record_without_its_picture_is_named(figure, tmp_path):
    figure.with_suffix(".png").unlink()
    with pytest.raises(FileNotFoundError, match="fastrates_by_hand.png"):
        build.collect(tmp_path / "source")


def test_a_fault_of_a_page_is_one_sentence_and_fails(figure, monkeypatch, capsys):
    monkeypatch.setenv("RUNS_DIR", str(figure.parent))
    figure.with_suffix(".png").unlink()
    assert build.main([]) == 1
    said = capsys.readouterr().err
    assert said.startswith("site: ") and said.count("\n") == 1
    assert "fastrates_by_hand.png" in said


def test_help_builds_nothing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("RUNS_DIR", str(tmp_path))
    with pytest.raises(SystemExit) as end:
        build.main(["--help"])
    assert end.value.code == 0 and list(tmp_path.iterdir()) == []
    assert "usage: python docs/build.py" in capsys.readouterr().out


def test_set_up_is_folded_and_a_picture_is_described_by_its_figure(figure):
    path = files.ROOT / "notebooks" / "00_attention_by_hand.ipynb"
    page = nbformat.reads(build.notebook(path, figures.best()), as_version=4)
    folded = [c for c in page.cells if "hide-input" in c.metadata.get("tags", [])]
    assert {"parameters", "set-up"} <= {tag for c in folded for tag in c.metadata.tags}
    described = [
        cell.metadata.mystnb["image"]["alt"]
        for cell in page.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    (shown,) = figures.best()
    assert described.count(shown.alt) == 1
    others = [words for words in described if words != shown.alt]
    assert all(words.startswith("The picture of the section: ") for words in others)
    assert "../figures/demo/fastrates_by_hand.md" in page.cells[-1].source


def test_links_to_a_picture_lead_to_its_page_and_pictures_stay(figure, tmp_path):
    source = tmp_path / "source"
    build.collect(source)
    start = (source / "index.md").read_text("utf-8")
    assert "<a href" not in start
    assert re.search(r"\[<img [^>]*>\]\(figures/desk/law_diagonal\.md\)", start)
    assert re.search(r"!\[[^]]*\]\(figures/demo/poster\.png\)", start)
    readme = (source / "readme.md").read_text("utf-8")
    assert "[Figure](figures/demo/fastrates_fig3.md)" in readme
    assert "(notebooks/40_law_of_margins.ipynb)" in readme
    beside = (source / "figures" / "beside.md").read_text("utf-8")
    assert "[fastrates_fig2](demo/fastrates_fig2.md)" in beside


WORDS = "<script>alert(1)</script> ``` a $x < y$ & [b](javascript:c) *d* | {e}`f`"


def test_what_a_record_says_is_text_on_every_page_that_shows_it(figure, tmp_path):
    saved = json.loads(figure.read_text("utf-8"))
    saved["caption"] = WORDS
    saved["claims"][0]["statement"] = WORDS
    saved["claims"][0]["setting"] = ""
    figure.write_text(json.dumps(saved), "utf-8")
    build.collect(tmp_path / "collected")
    source = tmp_path / "source"
    source.mkdir()
    for place in ("ledger_a.md", "figures/demo/fastrates_by_hand.md"):
        shutil.copy(tmp_path / "collected" / place, source)
    command = [sys.executable, "-m", "sphinx", "-Q", "-c", str(DOCS)]
    options = ["-D", "root_doc=ledger_a", str(source), str(tmp_path / "site")]
    subprocess.run([*command, *options], check=True)
    before, formula, after = WORDS.partition("$x < y$")
    for name in ("ledger_a", "fastrates_by_hand"):
        page = parsed(tmp_path / "site" / f"{name}.html").article
        assert before + r"\(x < y\)" + after in page.text, name
        assert not page.select("script, [href^=javascript]"), name


def test_what_a_record_says_is_no_html_on_the_page_of_a_figure_without_an_entry(
    figure, tmp_path
):
    index = figure.parents[1] / "index.toml"
    text = index.read_text("utf-8")
    assert "fastrates_by_hand" in text
    index.write_text(text.replace("fastrates_by_hand", "another_figure"), "utf-8")
    saved = json.loads(figure.read_text("utf-8"))
    saved["caption"] = saved["figure"] = WORDS
    figure.write_text(json.dumps(saved), "utf-8")
    build.collect(tmp_path / "source")
    place = tmp_path / "source" / "figures" / "demo" / "fastrates_by_hand.md"
    markdown = place.read_text("utf-8").partition("```{raw} html")[0]
    # The text of the picture becomes an attribute, which Sphinx escapes.
    markdown = re.sub("^:alt:.*$", "", markdown, flags=re.M)
    assert markdown.count("alert(1)") == 2
    assert not re.search(r"(?<!\\)<[A-Za-z/!?]", markdown)


def parsed(path):
    return bs4.BeautifulSoup(path.read_text("utf-8"), "html.parser")


@pytest.fixture(scope="module")
def pages(whole_site):
    """Return every page of the site except listings of source code."""
    paths = [p for p in whole_site.rglob("*.html") if "_modules" not in p.parts]
    return {path.relative_to(whole_site).as_posix(): parsed(path) for path in paths}


def test_every_figure_has_a_page_with_its_picture_and_the_page_that_explains_it(pages):
    for one in figures.best():
        page = pages[f"figures/{one.scale}/{one.slug}.html"]
        assert page.article.img["alt"] == one.alt, one.slug
        links = {link.get("href") for link in page.article.select("a")}
        name = f"../../notebooks/{one.record['notebook']}.html"
        assert name in links, one.slug
        back = pages[f"notebooks/{one.record['notebook']}.html"]
        place = f"../figures/{one.scale}/{one.slug}.html"
        assert place in {link.get("href") for link in back.article.select("a")}


def test_every_page_has_an_icon_and_the_poster_opens_at_its_size(pages):
    for name, page in pages.items():
        assert page.select_one("link[rel~=icon]"), name
    poster = pages["index.html"].select_one("article a[href$='poster.png'] > img")
    assert poster["src"] == poster.parent["href"]


def test_the_papers_figures_have_a_column_of_verdicts(pages):
    overview, *others = pages["figures/beside.html"].article.select("table")
    assert overview.select("th")[1].text == "verdicts"
    (row,) = [row for row in overview.select("tr") if "A, Figure 7" in row.text]
    assert "not reproduced: 1" in row.select("td")[1].text
    assert {table.select("th")[2].text for table in others} == {"verdict"}


def test_the_losses_are_described(pages):
    assert "names of the losses" in pages["api/lib.LOSSES.html"].article.text
    assert "names of the losses" in pages["api.html"].article.text


def test_every_claim_of_a_figure_is_on_its_page_with_its_verdict(pages):
    for one in figures.best():
        page = pages[f"figures/{one.scale}/{one.slug}.html"]
        assert len(page.select("table.claims tbody tr")) == len(one.claims), one.slug
        assert len(page.select("table.claims .verdict")) == len(one.claims), one.slug


def test_every_exported_name_has_a_page_with_its_signature(pages):
    for name in lib.__all__:
        page = pages[f"api/lib.{name}.html"]
        assert page.h1.text.startswith(f"lib.{name}"), name


def is_documented(name):
    value = getattr(lib, name)
    return callable(value) and not isinstance(value, type(sys))


@pytest.mark.parametrize("name", [*filter(is_documented, lib.__all__)])
def test_a_name_of_the_library_shows_parameters_and_an_example(name, pages):
    page = pages[f"api/lib.{name}.html"]
    terms = {term.text.strip(" :#¶") for term in page.select("dt, p.rubric")}
    assert "Examples" in terms, name
    takes = page.select_one("dt.sig").select("em.sig-param")
    assert "Parameters" in terms or not takes, name


def test_no_page_loads_anything_from_elsewhere_and_every_link_leads_somewhere(
    whole_site, pages
):
    for name, page in pages.items():
        place = (whole_site / name).parent
        for tag in page.select("[href], [src]"):
            target = tag.get("src") or tag.get("href")
            if re.match("(https?|mailto|data):", target):
                assert tag.name == "a" or target.startswith("data:"), (name, target)
                continue
            path, _, anchor = target.partition("#")
            path = path.partition("?")[0]
            found = place / path if path else whole_site / name
            assert found.exists(), (name, target)
            if anchor and found.suffix == ".html" and tag.name == "a":
                on_it = pages.get(found.resolve().relative_to(whole_site).as_posix())
                known = on_it is None or anchor in ("", "top") or on_it.find(id=anchor)
                assert known, (name, target)


def test_every_picture_has_words_and_no_file_name_for_them(pages):
    for name, page in pages.items():
        for picture in page.select("article img"):
            words = picture.get("alt", "")
            assert words.strip(), (name, picture)
            assert not re.search(r"\.(png|svg|gif)$", words), (name, words)


def test_the_site_is_small_and_its_names_can_be_searched(whole_site):
    size = sum(path.stat().st_size for path in whole_site.rglob("*") if path.is_file())
    assert size < 40e6
    index = (whole_site / "searchindex.js").read_text("utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert any("token_svm" in name for name in terms["alltitles"])
