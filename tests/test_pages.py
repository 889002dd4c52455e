"""Every page: .py and .ipynb agree, its place in the story is told, every answer is measured.

Without these a reader would open a page whose outputs are another page's, follow a link to nowhere,
or read a number that nothing measured.
"""

import ast
import json
import re
import tomllib
from functools import cache

import jupytext
import nbformat
import pytest

from lib import files
from lib.companion import colab_cell, record
from lib.site import figures

FOLDER = files.ROOT / "notebooks"
SOURCES = sorted(FOLDER.glob("[0-9]*.py"))
SCALES, RENAMED, ORDER = (
    tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    for name in ("scales", "renamed", "order")
)
MAIN = ORDER["main"]
MOST_LINES = 2_300  # of code on all pages; may only be lowered
read = cache(jupytext.read)  # nobody changes what it gives
each = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def code(source):
    return [cell for cell in read(source).cells if cell.cell_type == "code"]


def prose(source):
    return "\n\n".join(c.source for c in read(source).cells if c.cell_type == "markdown")


def cells(notebook):
    kept = [cell for cell in notebook.cells if not colab_cell._installs(cell)]
    return [(c.cell_type, c.source.strip(), sorted(c.metadata.get("tags", []))) for c in kept]


def assigned(node):
    """The names that a program binds at its top level, once per place, functions left out."""
    apart = ast.FunctionDef | ast.ClassDef | ast.Lambda
    if isinstance(node, apart | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return []
    own = [node.id] if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) else []
    return own + [name for child in ast.iter_child_nodes(node) for name in assigned(child)]


@each
def test_a_page_and_its_executed_copy_are_one(source):
    copy = nbformat.read(source.with_suffix(".ipynb"), 4)
    own, mend = cells(read(source)), "run `make notebooks`"
    assert own == cells(copy), f"{source.stem}.ipynb differs from {source.name}: {mend}"
    kinds, texts, _ = zip(*own, strict=True)
    assert kinds[0] == "markdown" and texts[0].startswith("# ") and all(texts)
    installing = [cell.source for cell in colab_cell._installing(copy.cells)]
    assert [cell.source for cell in copy.cells] == installing, mend
    assert {n.metadata["kernelspec"]["name"] for n in (read(source), copy)} == {"python3"}
    outputs = [output for cell in copy.cells for output in cell.get("outputs", [])]
    assert outputs and not [output for output in outputs if output.output_type == "error"], mend
    words = "an output names a folder of this machine"
    assert str(files.ROOT) not in nbformat.writes(copy), words


@each
def test_parameters_are_literals_that_no_later_cell_assigns(source):
    # A record asks for the parameters again when it is saved: another value would be a change.
    text = source.read_text(encoding="utf-8")
    parameters, names = record._literals(text), assigned(ast.parse(text))
    assert parameters["scale"] == "demo"
    assert {name: names.count(name) for name in parameters} == dict.fromkeys(parameters, 1)
    for scale, changes in SCALES.get(source.stem, {}).items():
        assert scale in record.SCALES[1:] and changes.keys() <= parameters.keys() - {"scale"}


def test_tables_of_pages_name_pages():
    stems = {path.stem for path in SOURCES}
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == stems and SCALES.keys() <= stems
    assert not stems & RENAMED.keys() and all(now and {*now} <= stems for now in RENAMED.values())
    placed = [*MAIN, *ORDER["side"], *ORDER["appendix"]]
    assert sorted(placed) == sorted(stems)
    assert set(ORDER["after"]) == stems - {*MAIN} and {*ORDER["after"].values()} <= {*MAIN}


def told(name):
    """The line below a page's title."""
    link = lambda other: f"[{other[:2]}]({other}.ipynb)"
    if name in MAIN:
        k = MAIN.index(name)
        parts = [f"Page {k + 1} of {len(MAIN)}"]
        parts += [f"before: {link(MAIN[k - 1])}"] if k else []
        parts += [f"next: {link(MAIN[k + 1])}"] if k + 1 < len(MAIN) else []
    else:
        kind = "Side road" if name in ORDER["side"] else "Appendix"
        parts = [f"{kind} of page {link(ORDER['after'][name])}"]
    parts += [f"{ORDER['minutes'][name]} minutes", "[words](words.md)"]
    return f"*{' · '.join(parts)}.* After it you can {ORDER['aim'][name]}."


@each
def test_a_page_says_where_it_stands_links_to_what_there_is_and_folds_its_plumbing(source):
    assert read(source).cells[0].source.split("\n")[2] == told(source.stem)
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose(source))
    assert [target for target in targets if not (FOLDER / target).exists()] == []
    folded = [c for c in code(source) if {"parameters", "set-up"} & {*c.metadata.get("tags", [])}]
    assert 1 <= len(folded) <= 3
    assert all(cell.source.startswith("# Set-up, no need to read.") for cell in folded)
    shown = [cell.source for cell in code(source) if cell not in folded]
    assert not [text for text in shown if re.search(r"run\.(save|keep)\(|record\.start", text)]


def test_the_pages_do_not_grow_and_every_drawing_is_shown():
    lines = [line.strip() for s in SOURCES for cell in code(s) for line in cell.source.split("\n")]
    assert len([line for line in lines if line and not line.startswith("#")]) <= MOST_LINES
    assert len((FOLDER / "words.md").read_text(encoding="utf-8").splitlines()) <= 40
    pictures = {*re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "".join(map(prose, SOURCES)))}
    assert {f"drawings/{path.name}" for path in (FOLDER / "drawings").iterdir()} <= pictures


ANSWER = re.compile(r"^\*\*(?:Answer|Here)\b.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d[\d,]*(?:\.\d+(?!\w|\.\d)(\s*%)?|(\s*%))")
NO_RESULT = re.compile(r"\b\d{4}\.\d{5}\b|\\ell_\{?[\d.]+\}?")  # an arXiv number, a norm's name


def known(page):
    """What the records of a page's figures, at every scale, have measured or were made with."""
    for path in (files.ROOT / "figures").glob("d*/*.json"):
        saved = json.loads(path.read_text(encoding="utf-8"))
        if page in RENAMED.get(saved["notebook"], [saved["notebook"]]):
            yield from figures._quantities(saved).values()


def unlike(text, values):
    """The decimal numbers of a text that are none of the `values` at the digits printed."""
    values = [v for row in values for v in (row if isinstance(row, list) else [row])]
    values = [float(v) for v in values if isinstance(v, int | float)]

    def is_known(word, percent):
        digits = len(word.partition(".")[2])
        shown = float(word.replace(",", "").replace("\u2212", "-")) / (100 if percent else 1)
        half = 0.5001 * 10.0 ** -(digits + 2 * bool(percent))
        return any(abs(abs(value) - abs(shown)) <= half for value in values)

    matches = NUMBER.finditer(NO_RESULT.sub("", text))
    numbers = [(match[0].rstrip("% "), match[1] or match[2]) for match in matches]
    return [word for word, percent in numbers if not is_known(word, percent)]


@each
def test_every_number_of_an_answer_is_of_a_record(source):
    answers = "\n".join(match[0] for match in ANSWER.finditer(prose(source)))
    assert unlike(answers, known(source.stem)) == []


def test_a_number_that_no_record_has_is_seen():
    values = [0.9817, -0.8417, [1.75, 13], "demo", None, True]
    right = "at 98.2 %, like $t^{-0.84}$, 0.98 of it, p = 1.75, arXiv 2402.05738"
    assert unlike(right, values) == []
    wrong = unlike("at 98.3 % and 97 %, like $t^{-0.85}$, 1,000.5", values)
    assert wrong == ["98.3", "97", "-0.85", "1,000.5"]
