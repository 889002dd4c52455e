"""The site from small figures and notebooks: what it shows, and what a reader must
never miss.
"""

import errno
import json
import re
from html.parser import HTMLParser

import bs4
import nbformat
import pytest
from matplotlib.figure import Figure

from companion import claims, record
from companion.site import build, figures
from lib import files, provenance

PNG = (
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
).decode()
PAGES = """
[01_x]
question = "Why?"
paper = "A"
minutes = { demo = 0.3 }
scales = { desk = {} }
"""
INDEX = """
[[01_x.figure]]
slug = "good"
scale = "demo"
sentence = "ends at {end:.1f}"
"""


PAGE = '# %% tags=["parameters"]\nscale = "demo"\nseeds = 2\n'


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )


def save(scale="demo", holds=True, measured=0.25):
    """A figure with one claim; the path of its record."""
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    claim = claims.Claim("c", "a < b & c", "paper A, Lemma 5", measured, "≤ 1", holds)
    numbers = {"end": record.Number(0.125, 0.01)}
    data = [{"name": "line", "source": "synthetic"}]
    run = record.Run("01_x", "A", {"scale": scale, "seeds": 2})
    folder = files.folder("figures") / scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(record.TOLD, str(folder))
        about = dict(claims=[claim], numbers=numbers, data=data)
        run.save(figure, "good", "Figure 1", "A <line>.", **about)
    return folder / "good.json"


def changed(path, change):
    saved = json.loads(path.read_text("utf-8"))
    change(saved)
    write(path, saved)


def notebook(path, *outputs, count=1, source="x = 1", text="# A title with $t^2$"):
    cells = [
        nbformat.v4.new_markdown_cell(text),
        nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs)),
    ]
    write(path, nbformat.writes(nbformat.v4.new_notebook(cells=cells)))


def shown(**data):
    return nbformat.v4.new_output(
        "display_data", {k.replace("_", "/"): v for k, v in data.items()}
    )


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in ("figures", "runs", "notebooks"):
        monkeypatch.setenv(f"{name.upper()}_DIR", str(tmp_path / name))
    write(tmp_path / "figures" / "index.toml", INDEX)
    write(tmp_path / "notebooks" / "01_x.py", PAGE)
    write(tmp_path / "notebooks" / "pages.toml", PAGES)
    notebook(tmp_path / "notebooks" / "01_x.ipynb")
    return tmp_path


def built(place):
    """The site's pages by name."""
    site = place / "runs" / "site"
    build._build(site)
    made = {path.relative_to(site).as_posix(): path for path in site.rglob("*.html")}
    return {
        n: bs4.BeautifulSoup(p.read_text("utf-8"), "html.parser")
        for n, p in made.items()
    }


def card(made, title):
    (item,) = [li for li in made["index.html"].select(".card") if li.h3.text == title]
    return item


def test_a_figure_is_shown_with_its_finding_claims_and_origin(place):
    save()
    made = built(place)
    shown_card = card(made, "Figure 1, paper A")
    page = made["figures/good-demo.html"]
    assert "Ends at 0.1." in shown_card.text  # the record's 0.125 as the sentence asks
    for words in ("1 of 1 claims hold", "scale: demo", "data: synthetic"):
        assert words in shown_card.text
    assert (
        shown_card.img["alt"]
        == page.img["alt"]
        == "Figure 1, paper A. Ends at 0.1. A <line>."
    )
    assert (place / "runs" / "site" / shown_card.img["src"]).exists()
    assert "a < b & c" in page.text and "0.125 ± 0.01" in page.text
    assert "make figures ARGS=01" in page.text and page.find(
        "a", href="../notebooks/01_x-demo.html"
    )
    assert provenance.versions()["numpy"] in page.footer.text


def test_a_claim_that_fails_or_is_undecided_is_never_hidden(place):
    path = save(holds=False, measured=1.00000432)

    def more(saved):
        (fails,) = saved["claims"]
        saved["claims"].append(fails | {"id": "lost", "verdict": "not reproduced"})
        saved["claims"].append(
            fails | {"id": "won", "verdict": "reproduced", "holds": True}
        )
        saved["claims"].append(fails | {"id": "open", "verdict": "undecided"})

    changed(path, more)
    made = built(place)
    for shown_card in (card(made, "Figure 1, paper A"), made["figures/good-demo.html"]):
        assert (
            shown_card.select_one(".badge.fails").text
            == "1 of 4, 1 undecided claims hold"
        )
        assert [p.strong.text for p in shown_card.select("p.fails")] == [
            "Does not hold:"
        ] * 2
        assert [p.strong.text for p in shown_card.select("p.open")] == ["Undecided:"]
        assert "1.000004" in shown_card.text
    rows = made["ledger.html"].select("tbody tr")
    verdicts = ["fails", "not reproduced", "reproduced", "undecided"]
    assert [row.select_one(".verdict").text for row in rows] == verdicts
    (statement,) = made["ledger.html"].select("details.statement")
    assert (
        not statement.has_attr("open")
        and "2 of 4 do not hold" in statement.summary.text
    )
    exported = json.loads((place / "runs" / "site" / "claims.json").read_text("utf-8"))
    assert [row["verdict"] for row in exported] == verdicts
    about = {
        "figure": "good-demo",
        "number": "Lemma 5",
        "measured": 1.00000432,
        "bound": "≤ 1",
    }
    assert exported[0].items() >= (about | {"statement": "a < b & c"}).items()


def test_the_largest_scale_stands_in_front_and_leads_to_the_others(place):
    save()
    save(scale="desk")
    made = built(place)
    assert "scale: desk" in card(made, "Figure 1, paper A").text
    assert made["figures/good-desk.html"].find("a", href="good-demo.html")


def test_a_run_is_shown_only_if_it_ended_and_its_page_is_still_the_same(place):
    folder = place / "runs" / "figures" / "demo" / "01_x"
    notebook(folder / "01_x.ipynb", text="# The run")

    def title():
        return built(place)["notebooks/01_x-demo.html"].title.text

    assert "A title" in title()  # the committed one
    for source, shown in (
        ("0000", "A title"),
        (files.sha256(PAGE.encode()), "The run"),
    ):
        write(folder / record.MARKER, {"inputs": {"source": source}})
        assert shown in title()


def test_a_widget_is_a_line_and_markdown_of_a_cell_has_formulas(place):
    widget = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "1"},
        "text/plain": "VBox()",
    }
    notebook(
        place / "notebooks" / "01_x.ipynb",
        shown(**widget),
        shown(
            **widget | {"text/plain": "runs:   0%|          | 0/56 [00:00<?, ?it/s]"}
        ),
        shown(text_markdown="$\\alpha$"),
    )
    cells = built(place)["notebooks/01_x-demo.html"].select_one(".cells")
    assert cells.text.count("A widget stands here") == 1 and "VBox" not in cells.text
    assert len(cells.select("math")) == 2


def test_what_a_record_says_is_never_run(place):
    bad = "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=alert(1)>"

    def attack(saved):
        saved["claims"][0] |= {
            "statement": bad,
            "holds": False,
            "source": bad,
            "bound": bad,
        }
        saved |= {"caption": bad, "figure": bad}

    changed(save("desk"), attack)
    for page in built(place).values():
        assert all(script.get("src") for script in page.select("script"))
        assert not page.select("[onerror], [href^=javascript]")


def test_code_stands_open_but_parameters_and_pictures_are_described(place):
    save()
    path = place / "notebooks" / "01_x.ipynb"
    image = shown(image_png=PNG)
    for source, alt in (
        (
            'run.save(figure, "good")\nfigure',
            "Figure 1, paper A. Ends at 0.1. A <line>.",
        ),
        ("figure", "Picture drawn by the cell that begins: figure"),
    ):
        notebook(path, image, source=source)
        page = built(place)["notebooks/01_x-demo.html"]
        assert page.img["alt"] == alt and page.article.details.has_attr("open")
    stored = nbformat.read(path, as_version=4)
    stored.cells[1].metadata["tags"] = ["parameters"]
    write(path, nbformat.writes(stored))
    assert not built(place)["notebooks/01_x-demo.html"].article.details.has_attr("open")


def test_links_lead_to_pages_and_notes_and_others_are_undone(place):
    write(
        place / "notebooks" / "proof.md",
        "# A proof of $t^2$\n\n[the page](01_x.ipynb#cell)",
    )
    text = "# T\n\n[proof](proof.md#second), [none](gone.md), [bad](javascript:alert), [x](01_x.py)"
    notebook(
        place / "notebooks" / "01_x.ipynb", text=text + ", [data](../data/README.md)"
    )
    made = built(place)
    assert made["index.html"].find("a", href="notes/proof.html")
    links = [
        a["href"] for a in made["notebooks/01_x-demo.html"].select(".cells a[href]")
    ]
    assert links == ["../notes/proof.html", "../notebooks/01_x-demo.html"]
    assert made["notes/proof.html"].find("a", href="../notebooks/01_x-demo.html")


def test_a_record_with_statements_is_a_ledger(place):
    def ledger(saved):
        about = {"number": "Lemma 9", "setting": "two", "seeds": 7, "kind": "form"}
        saved["claims"][0] |= about | {"interval": [0.1, 0.4]}
        weak = {"holds": True, "fails_if": ["a"], "catches": [], "remark": "$x$"}
        saved["claims"].append(saved["claims"][0] | weak)
        saved["statements"] = {
            "Lemma 9": {"topic": "t", "says": "says $t^2$ < 1", "why": ""},
            "Remark 1": {"topic": "r", "says": "defines", "why": "a definition"},
        }

    changed(save(holds=False), ledger)
    lemma, remark = built(place)["ledger.html"].select("details.statement")
    failed, powerless = lemma.select("tbody tr")
    assert lemma.p.text.startswith("says ") and lemma.p.math and "< 1" in lemma.p.text
    assert (
        "1 of 2 do not hold" in lemma.summary.text and "Lemma 9" in lemma.summary.text
    )
    for words in ("two, 7 seeds", "0.25 [0.1, 0.4, 7 seeds only]", "fails"):
        assert words in failed.text, words
    assert powerless.select_one(".verdict").text == "no power" and powerless.math
    assert (
        remark.tr
        and "a definition" in remark.text
        and "not checked" in remark.summary.text
    )


NUMBERS = {"gap": 0.0344, "low": -7.126, "low_angle": 1.0, "n": 2, "gone": None}
QUOTED = {
    "scale": "demo",
    "numbers": {name: {"value": value} for name, value in NUMBERS.items()},
    "parameters": {"steps": 5000, "n": 1},
    "claims": [{"id": "rate of $a$", "measured": 2.5, "holds": False}],
}


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (
            "off by {gap:.1%}, then {low:.2f}, $W_{mm}$",
            "off by 3.4 %, then -7.13, $W_{mm}$",
        ),
        ("after {steps:,}, at {rate of $a$:.0f}", "after 5,000, at 2"),
        ("{claims_that_hold:d} of {claims:d}", "0 of 1"),
        (
            "ends at {gone:.1f} and {other:.1f}",
            "ends at no value of gone and no value of other",
        ),
        ("at {low_angle:.1f°}", "at 60.0°"),  # unit vectors of distance 1
        ("{fastrates_fig2/steps:,} steps", "1,000 steps"),  # of another figure
        ("{n:d}", "2"),  # a number before a parameter of the same name
        ("like $t^{{{low:.2f}}}$ or $t^{{1/2}}$", "like $t^{-7.13}$ or $t^{1/2}$"),
    ],
)
def test_a_sentence_has_the_numbers_of_the_record(sentence, words):
    assert figures.filled(sentence, QUOTED) == words


def test_formulas_become_mathml_in_text_tables_and_plain_words():
    text = build._html(
        "The $W_{mm}$ of\n\n$$\\arg\\min_W \\|W\\|$$\n\n| a |\n|---|\n| $x < y$ |"
    )
    assert text.count("<math") == 3 and 'display="block"' in text
    assert "$" not in text and "\\" not in text
    assert "<mo>arg</mo>" in text and "&lt;" in text.replace("&#x0003C;", "&lt;")
    text = build._formulas("a < b & *c*, $t^2$")
    assert text.startswith("a &lt; b &amp; *c*, <math") and text.endswith("</math>")
    assert build._formulas("costs 3 $ < 4") == "costs 3 $ &lt; 4"
    for unread in (r"\nosuch{x}", "{{"):
        assert build._formulas(f"${unread}$") == f"<code>{unread}</code>"


def test_a_formula_that_shows_a_backslash_stops_the_build(place, capsys, monkeypatch):
    write(place / "notebooks" / "proof.md", "# P\n\n$\\big\\|W\\Big\\|$")
    assert "\\" not in built(place)["notes/proof.html"].math.text
    monkeypatch.setattr(build, "convert", lambda *_, **__: "<math><mo>\\|</mo></math>")
    write(place / "notebooks" / "proof.md", "# P\n\n$\\|one that no page has\\|$")
    assert build.main([]) == 1
    assert (
        "notes/proof.html: a formula would be shown with \\|" in capsys.readouterr().err
    )


def test_a_site_takes_the_place_of_the_last_one(place, capsys):
    assert build.main([]) == 0 and build.main([]) == 0
    assert [path.name for path in (place / "runs").iterdir()] == ["site"]
    assert "open " in capsys.readouterr().out


def test_a_folder_that_is_no_site_is_left_alone(place, capsys):
    write(place / "runs" / "site" / "thesis.txt", "years of work")
    assert build.main([]) == 1
    assert (place / "runs" / "site" / "thesis.txt").read_text() == "years of work"
    assert "something else" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["pages", "tables"])
def test_a_disk_that_takes_no_file_is_one_sentence(place, what, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system", "somewhere")

    monkeypatch.setattr(figures, "renewed", str)
    monkeypatch.setattr(files, "write", full)
    assert build.main([what]) == 1
    assert (
        capsys.readouterr().err == "companion.site: Read-only file system: somewhere\n"
    )


def test_a_damaged_record_is_named(place, capsys):
    changed(save(), lambda saved: saved.pop("claims"))
    assert build.main([]) == 1
    assert (
        "good.json" in capsys.readouterr().err
        and not (place / "runs" / "site").exists()
    )


class Tags(HTMLParser):
    """The tags of a page, as (name, attributes): a tree of the whole site takes long to
    grow.
    """

    def __init__(self, path):
        super().__init__()
        self.all = []
        self.text = path.read_text("utf-8")
        # Nine tags of ten are colours of code and formulas; what names or loads
        # anything stays.
        text = re.sub(r'<span class="\w+">([^<]*)</span>', r"\1", self.text)
        self.feed(
            re.sub(
                r"<math((?!</math>|\b(?:id|href|src)=).)*</math>", "", text, flags=re.S
            )
        )

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))

    def of(self, *names):
        return [attributes for tag, attributes in self.all if tag in names]


def test_the_whole_site_has_every_figure_note_benchmark_and_claim(whole_site):
    records = list((files.ROOT / "figures").glob("d*/*.json"))
    names = [f"figures/{path.stem}-{path.parent.name}.html" for path in records]
    names += [
        f"notes/{path.stem}.html" for path in (files.ROOT / "notebooks").glob("*.md")
    ]
    assert records and all((whole_site / name).exists() for name in names)
    assert sum(path.stat().st_size for path in whole_site.rglob("*")) < 30e6
    benchmarks = Tags(whole_site / "benchmarks.html")
    assert len(benchmarks.of("table")) == 3 and "missed" in benchmarks.text
    claims = sum(len(json.loads(path.read_text("utf-8"))["claims"]) for path in records)
    exported = json.loads((whole_site / "claims.json").read_text("utf-8"))
    unmeasured = ("not checked", "see its note")
    assert sum(row["verdict"] not in unmeasured for row in exported) == claims


def test_every_page_can_be_read_and_every_link_leads_somewhere(whole_site):
    for path in whole_site.rglob("*.html"):
        page = Tags(path)
        assert (
            page.of("html") == [{"lang": "en"}]
            and len(page.of("h1")) == 1
            and page.of("nav")
        )
        assert re.search(r"<title>\s*[^<\s]", page.text), path
        (footer,) = re.findall(r"<footer\b.*?</footer>", page.text, re.S)
        assert re.sub("<[^>]*>", "", footer).strip(), path
        assert all(image["alt"].strip() for image in page.of("img")), path
        labels = re.findall(r"<label\b.*?</label>", page.text, re.S)
        assert all(re.search("<(input|select)", label) for label in labels), path
        scripts = {script.get("src") for script in page.of("script")}
        assert scripts <= {"filter.js", "../filter.js"}, path
        ids = [attributes["id"] for _, attributes in page.all if "id" in attributes]
        assert len({*ids}) == len(ids), path
        for tag, attributes in page.all:
            for target in (
                attributes[name] for name in ("href", "src") if name in attributes
            ):
                if re.match("https?:", target):
                    assert tag == "a", (
                        f"{path}: {target} would be loaded from elsewhere"
                    )
                elif target.startswith("#"):
                    assert target[1:] in ids, f"{path}: {target}"
                elif not target.startswith("data:"):
                    assert (path.parent / target).exists(), f"{path}: {target}"
    assert not re.search(r"url\(|@import", (whole_site / "site.css").read_text("utf-8"))


def test_a_page_carries_its_drawings(place):
    write(place / "notebooks" / "drawings" / "line.svg", "<svg/>")
    notebook(
        place / "notebooks" / "01_x.ipynb", text="# T\n\n![a line](drawings/line.svg)"
    )
    made = built(place)
    (drawing,) = made["notebooks/01_x-demo.html"].find_all("img", alt="a line")
    assert drawing["src"].startswith("data:image/svg+xml;base64,")
    shown = "# T\n\n![the film](../figures/turning.gif) ![a map](../figures/desk/atlas_map.png)"
    notebook(place / "notebooks" / "01_x.ipynb", text=shown)
    pictures = built(place)["notebooks/01_x-demo.html"].select(".cells img")
    found = [
        picture["src"] for picture in pictures if not picture["src"].startswith("data:")
    ]
    assert found == ["../turning.gif", "../figures/atlas_map-desk.png"]
