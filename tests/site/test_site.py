"""Tests of the site.

A failure means that a figure has no page, a link leads nowhere, or an error is
published.
"""

import importlib.util
import json
import re
import shutil
import sys

import bs4
import nbformat
import pytest

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
conf = loaded("conf")


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


def test_a_record_without_its_picture_is_named(figure, tmp_path):
    figure.with_suffix(".png").unlink()
    with pytest.raises(FileNotFoundError, match="fastrates_by_hand.png"):
        build.collect(tmp_path / "source")


def test_a_fault_of_a_page_is_one_sentence_and_fails(figure, monkeypatch, capsys):
    monkeypatch.setenv("RUNS_DIR", str(figure.parent))
    figure.with_suffix(".png").unlink()
    assert build.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("site: ") and said.count("\n") == 1
    assert "fastrates_by_hand.png" in said


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


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("[a](figures/desk/law.png)", "[a](figures/desk/law.md)"),
        ("[a](../figures/demo/x.json)", "[a](../figures/demo/x.md)"),
        ("![a](figures/desk/law.png)", "![a](figures/desk/law.png)"),
        ("[a](other.png)", "[a](other.png)"),
        (
            '<a href="figures/demo/x.png"><img src="x.png" alt="a"></a>',
            '[<img src="x.png" alt="a">](figures/demo/x.md)',
        ),
        ("[a](words.md)", "[a](words.md)"),
    ],
)
def test_links_to_a_picture_lead_to_its_page_and_pictures_stay(link, led):
    source = [link]
    conf.lead_to_figures(None, "index", source)
    assert source == [led]


WORDS = "<script>alert(1)</script> ``` a $x < y$ & [b](javascript:c)"


def shown(place):
    """What a reader sees of a filled template's HTML, and the HTML."""
    text = place.read_text("utf-8")
    _, _, rest = text.partition("```{raw} html\n")
    html, fence, after = rest.rpartition("\n```")
    assert fence and not after.strip()  # no word of a record ends the HTML early
    assert "```" not in html
    return bs4.BeautifulSoup(html, "html.parser")


@pytest.mark.parametrize(
    "place",
    ["figures/demo/fastrates_by_hand.md", "ledger_a.md"],
    ids=["page", "ledger"],
)
def test_what_a_record_says_is_text_on_every_page_that_shows_it(
    figure, tmp_path, place
):
    saved = json.loads(figure.read_text("utf-8"))
    saved["caption"] = WORDS
    saved["claims"][0]["statement"] = WORDS
    saved["claims"][0]["setting"] = ""
    figure.write_text(json.dumps(saved), "utf-8")
    build.collect(tmp_path / "source")
    page = shown(tmp_path / "source" / place)
    assert WORDS in page.text
    assert not page.select("script, [href^=javascript]")


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
    assert not re.search("<[A-Za-z/!?]", markdown)


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
