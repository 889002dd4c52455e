"""Tests that committed files agree: pages, copies, records, pictures, index and tables.

Otherwise a reader opens the outputs of another page, follows a dead link, or reads a
number that nothing measured. Each test gathers all faults, so that one run lists
everything to repair.
"""

import ast
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from functools import cache

import jupytext
import nbformat
import pytest
from PIL import Image

from companion import headlines, page_table, pages, sources, stored
from companion.tables import figures
from lib import files, provenance
from lib.training.studies import STUDIES

ROOT = files.ROOT
FOLDER = ROOT / "notebooks"
PAGES = sorted(FOLDER.glob("[0-9]*.py"))
TABLE = page_table.read_pages()
MAIN = [page.name for page in TABLE.values() if page.road == "main"]
# Pages that train networks, or read the curves of networks that were trained.
TRAINING = ("14", "15", "16", "33", "34", "41", "45", "51")
RECORDS = {
    path: json.loads(path.read_text("utf-8"))
    for path in sorted((ROOT / "figures").glob("d*/*.json"))
}
INDEX = figures.index(figures.FIGURES)
ENTRIES = [entry for _, entries in INDEX for entry in entries]
read = cache(jupytext.read)  # nobody changes what it gives


def assert_faultless(named, faults_of, mend):
    """Assert that no thing has a fault, and name all faults otherwise.

    `named` is {name: thing}, and `faults_of` returns {fault: whether the thing has it}.
    """
    lines = [mend]
    for name, thing in named.items():
        if found := [what for what, is_so in faults_of(thing).items() if is_so]:
            lines.append(f"{name}: {', '.join(found)}")
    assert not lines[1:], "\n".join(lines)


# Pages.


def code(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def prose(path):
    return "\n\n".join(c.source for c in read(path).cells if c.cell_type == "markdown")


def cells(notebook):
    return [
        (c.cell_type, c.source.strip(), sorted(c.metadata.get("tags", [])))
        for c in notebook.cells
    ]


def assigned(node):
    """Return the names that a program binds at its top level, once per place.

    Functions are left out.
    """
    apart = ast.FunctionDef | ast.ClassDef | ast.Lambda
    if isinstance(
        node, apart | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ):
        return []
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        own = [node.id]
    else:
        own = []
    return own + [
        name for child in ast.iter_child_nodes(node) for name in assigned(child)
    ]


def told(name):
    """Return the line below a page's title."""

    def link(other):
        return f"[{other[:2]}]({other}.ipynb)"

    page = TABLE[name]
    if name in MAIN:
        k = MAIN.index(name)
        parts = [f"Page {k + 1} of {len(MAIN)}"]
        parts += [f"before: {link(MAIN[k - 1])}"] if k else []
        parts += [f"next: {link(MAIN[k + 1])}"] if k + 1 < len(MAIN) else []
    else:
        kind = "Side road" if page.road == "side" else "Appendix"
        parts = [f"{kind} of page {link(page.after)}"]
    parts += [f"{page.reading_minutes} minutes", "[words](words.md)"]
    return f"*{' · '.join(parts)}.* By the end, you will be able to {page.aim}."


ANSWER = re.compile(r"^\*\*(?:Answer|Here)\b.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d[\d,]*(?:\.\d+(?!\w|\.\d)(\s*%)?|(\s*%))")
# An arXiv number, a norm's name
NO_RESULT = re.compile(r"\b\d{4}\.\d{5}\b|\\ell_\{?[\d.]+\}?")


def unlike(text, values):
    """Return the decimal numbers in a text that are none of `values`.

    Values are rounded to the digits printed.
    """
    values = [v for row in values for v in (row if isinstance(row, list) else [row])]
    values = [abs(float(v)) for v in values if isinstance(v, int | float)]

    def is_known(word, percent):
        shown = abs(float(word.replace(",", "").replace("\u2212", "-"))) / (
            100 if percent else 1
        )
        half = 0.5001 * 10.0 ** -(len(word.partition(".")[2]) + 2 * bool(percent))
        return any(abs(value - shown) <= half for value in values)

    numbers = [
        (m[0].rstrip("% "), m[1] or m[2])
        for m in NUMBER.finditer(NO_RESULT.sub("", text))
    ]
    return [word for word, percent in numbers if not is_known(word, percent)]


PLACES = r"Left|Middle|Right|Upper|Lower|Top|Bottom"
# Bold at the start of a bullet, and quoted where one is to look.
NAMES = rf'^\* \*\*(?!{PLACES})([^*]+?)\.?\*\*|(?i:look at)[^"\n]*"([^"]+)"'


def stems(name):
    """Return its words without plurals and formulas."""
    text = re.sub(r"\$[^$]*\$", " ", name).lower()
    return {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text)} - {
        "the",
        "and",
    }


def unseen(text, words):
    """Return the names in a page's text that no panel, axis or legend of its figures
    has.
    """
    named = [
        part
        for name in re.findall(NAMES, text, re.M)
        for part in "".join(name).split(", ")
    ]
    return [
        name for name in named if not any(stems(name) <= stems(word) for word in words)
    ]


@cache
def lines(path):
    """Return which of "dotted" and "dashed" lines a figure has; old records do not
    say.
    """
    return {*RECORDS[path].get("lines", ["dashed", "dotted"])}


def kinds(text):
    return {*re.findall("dotted|dashed", text)}


def faults_of_page(path):
    text = path.read_text("utf-8")
    words = prose(path)
    name = path.stem
    copy = nbformat.read(path.with_suffix(".ipynb"), 4)
    own = cells(read(path))
    outputs = [output for cell in copy.cells for output in cell.get("outputs", [])]
    parameters = pages.parameters(text)
    bound = assigned(ast.parse(text))
    folded = [
        c
        for c in code(path)
        if {"parameters", "set-up"} & {*c.metadata.get("tags", [])}
    ]
    shown = [cell.source for cell in code(path) if cell not in folded]
    mine = {
        place: saved for place, saved in RECORDS.items() if saved["notebook"] == name
    }
    seen = [word for saved in mine.values() for word in saved.get("words", [])]
    measured = [
        v for saved in mine.values() for v in headlines.quantities(saved).values()
    ]
    loads = {p.relative_to(ROOT).as_posix() for p in sources.closure(text)}
    trains = any(p.startswith(("lib/training/", "lib/networks/")) for p in loads)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", words)
    return {
        "other cells than its .ipynb": own != cells(copy),
        "another kernel": {n.metadata["kernelspec"]["name"] for n in (read(path), copy)}
        != {"python3"},
        "no title, or an empty cell": not own[0][1].startswith("# ")
        or not all(c[1] for c in own),
        "no outputs, or a failed cell": not outputs
        or any(output.output_type == "error" for output in outputs),
        "a folder of this machine": str(ROOT) in nbformat.writes(copy),
        "not at demo scale": parameters["scale"] != "demo",
        # A record asks for the parameters again when it is saved: another value is a
        # change.
        "a parameter assigned twice": any(
            bound.count(each) != 1 for each in parameters
        ),
        "a scale of other parameters": any(
            scale not in pages.SCALES[1:]
            or not of.keys() <= parameters.keys() - {"scale"}
            for scale, of in TABLE[name].scales.items()
        ),
        "its place is told otherwise": own[0][1].split("\n")[2] != told(name),
        "a link to nowhere": not all((FOLDER / target).exists() for target in links),
        "plumbing is shown": not 1 <= len(folded) <= 3
        or not all(c.source.startswith("# Set-up, no need to read.") for c in folded)
        or re.search(r"run\.(save|keep)\(|record\.start", "\n".join(shown)),
        "a number that no record has": unlike(
            "\n".join(ANSWER.findall(words)), measured
        ),
        "a panel, axis or legend that is not there": seen and unseen(words, seen),
        "a kind of line that is not there": seen
        and not kinds(words) <= set().union(*map(lines, mine)),
        "theory hangs on training": trains != (name[:2] in TRAINING),
        "hangs on the tables or the batch": name
        != "50_what_we_know"  # which reads the index
        and any(p.startswith(("companion/tables/", "companion/batch/")) for p in loads),
    }


def test_every_page_is_one_with_its_copy_its_place_and_its_records():
    assert_faultless(
        {path.stem: path for path in PAGES}, faults_of_page, "run `make notebooks`"
    )


def faults_of_section(page):
    figures_of_page = {row.slug for row in ENTRIES if row.notebook.name == page.name}
    return {
        "no question": not page.question,
        "no paper": not page.paper,
        "no aim": not page.aim,
        "no road": not page.road,
        "no minutes of reading": page.reading_minutes < 1,
        "no minutes at demo scale": "demo" not in page.minutes,
        "minutes of a scale that it has not": not page.minutes.keys()
        <= {"demo", *page.scales},
        "not after a page of the story": (page.after not in MAIN)
        != (page.road == "main"),
        "a record of no figure": not page.records.keys() <= figures_of_page,
    }


def test_every_section_of_the_table_of_pages_is_whole():
    assert_faultless(TABLE, faults_of_section, "mend notebooks/pages.toml")
    roads = [page_table.ROADS.index(page.road) for page in TABLE.values()]
    assert roads == sorted(roads)


def test_the_table_of_pages_names_pages():
    known = {path.stem for path in PAGES}
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == known
    assert TABLE.keys() == known
    pictures = {*re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "".join(map(prose, PAGES)))}
    assert {
        f"drawings/{path.name}" for path in (FOLDER / "drawings").iterdir()
    } <= pictures


def test_a_number_or_name_that_no_record_has_is_seen():
    values = [0.9817, -0.8417, [1.75, 13], "demo", None, True]
    assert (
        unlike("98.2 %, $t^{-0.84}$, 0.98 of it, p = 1.75, arXiv 2402.05738", values)
        == []
    )
    wrong = unlike("at 98.3 % and 97 %, like $t^{-0.85}$, 1,000.5", values)
    assert wrong == ["98.3", "97", "-0.85", "1,000.5"]
    text = '* **Missing weights.** Look at "NGD, decay".\n* **Layers over steps.** A thin line.'
    words = ["Missing weight, $p$", "NGD, decay", "Layers' $W$", "Steps over SGD's"]
    assert unseen(text, words) == ["Layers over steps"]
    assert typed("Lemma 5 holds in 19 draws")
    assert not typed("Lemmas 4 and 12-30, p = 1.5, 2 and 3, CIFAR-10")


# Records and the index of figures.


def contradictions(saved):
    """Return what a caption says of n, T, d, k or the seeds against the record's
    setting.
    """
    caption = saved["caption"]
    count = len(saved["seeds"])
    setting = {**saved["parameters"], **saved.get("setting", {})}
    for name in setting.keys() & {*"nTdk"}:
        said = re.findall(
            rf"(?<![\w\\]){name}\s*=\s*(\d+(?:,\d{{3}})*(?:\.\d+)?)", caption
        )
        if isinstance(setting[name], list):
            used = setting[name]
        else:
            used = [setting[name]]
        if said and not {float(x.replace(",", "")) for x in said} & {*map(float, used)}:
            yield name
    numbers = re.findall(r"(\d+) (?:paired |fresh )*seeds", caption)
    listed = [
        f"[{x.strip('[]')}]" for x in re.findall(r"\bseeds? (\d+|\[[\d, ]+\])", caption)
    ]
    if (numbers and str(count) not in numbers) or (
        listed and not numbers and str(saved["seeds"]) not in listed
    ):
        yield "seeds"


def faults_of_record(path):
    saved = RECORDS[path]
    page = FOLDER / f"{RECORDS[path]['notebook']}.py"
    if not page.exists():
        return {"its page is gone": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTEBOOKS_DIR", str(FOLDER))
        plan = pages.planned(page.stem, saved["scale"])
    return {
        "its caption says otherwise": [*contradictions(saved)],
        "its caption names another kind of line": not kinds(saved["caption"])
        <= lines(path),
        "its page has other parameters now": plan is None
        or json.loads(files.dumps(plan.values)) != saved["parameters"],
    }


def test_records_are_of_pages_of_today_and_took_no_more_memory_than_is_said():
    mend = "make figures makes them again"
    named = {f"{path.parent.name}/{path.stem}": path for path in RECORDS}
    assert_faultless(named, faults_of_record, mend)
    text = (ROOT / "REPRODUCING.md").read_text("utf-8")
    said = float(re.search(r"below ([\d.]+) GB at demo scale", text)[1])
    demo = [saved for saved in RECORDS.values() if saved["scale"] == "demo"]
    assert max(saved["provenance"]["peak_memory_mb"] for saved in demo) < 1000 * said


READ = (
    r"(lib|companion|papers)/|notebooks/[^/]*\.(py|toml)$"
    r"|figures/(desk/.*\.npz|(demo|desk)/[^/]*\.json|power/.*|index\.toml)$"
)


def unpacked(commit, folder):
    """Unpack the files that the pages of a commit read into `folder`."""
    listed = provenance.git("ls-tree", "-r", "--name-only", commit).split()
    archive = [
        "git",
        "archive",
        commit,
        *(name for name in listed if re.match(READ, name)),
    ]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as then:
        then.extractall(folder, filter="data")
    return folder


def fingerprints(saved, then, known):
    """Return the possible fingerprints of a record, computed from the files of its
    commit.
    """
    page = saved["notebook"]
    key = page, json.dumps(saved["parameters"]), then
    if key not in known:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOTEBOOKS_DIR", str(then / "notebooks"))
            for module in (files, provenance, sources):
                patch.setattr(module, "ROOT", then)
            known[key] = sources.fingerprint(page, saved["parameters"])
        # Before there was a table of pages, each record had its own.
        before = files.read_table(then / "notebooks" / "records.toml")
        if page in before:
            known[key]["record"] = before[page]
    parts = known[key] | {"data": saved["data"]}
    yield provenance.digest(parts)
    # A record from before the texts of figures and the records that page 50 reads
    # counted.
    parts.pop("texts", None)
    if page == "50_what_we_know":
        parts["kept"] = {}
    yield provenance.digest(parts)
    parts.pop("kept", None)  # a record from before kept results counted
    yield provenance.digest(parts)


def test_records_pictures_and_notes_come_from_clean_commits_of_this_history(
    tmp_path_factory,
):
    if provenance.git("rev-parse", "--is-shallow-repository") != "false\n":
        pytest.skip("this clone has no history")
    history = {commit[:12] for commit in provenance.git("rev-list", "HEAD").split()}
    folders = {}
    known = {}

    def faults(name):
        saved = RECORDS[ROOT / name]
        made = saved["provenance"]
        commit = saved["provenance"]["commit"]
        with Image.open((ROOT / name).with_suffix(".png")) as picture:
            stamp = json.loads(picture.info["Description"])
        origin = {key: made[key] for key in ("commit", "fingerprint")}
        if commit in history and commit not in folders:
            folders[commit] = unpacked(
                commit, tmp_path_factory.mktemp(commit).resolve()
            )
        return {
            "its picture is of another run": stamp != {"slug": saved["slug"]} | origin,
            f"{commit} is no clean commit of this history": commit not in history,
            f"{commit} has other code, parameters or data": commit in history
            and made["fingerprint"] not in fingerprints(saved, folders[commit], known),
        }

    tracked = provenance.git("ls-files", "figures/d*/*.json").split()
    assert tracked
    assert_faultless(
        dict(zip(tracked, tracked, strict=True)),
        faults,
        "make them again from committed code",
    )
    texts = "\n".join(path.read_text("utf-8") for path in FOLDER.glob("*.md"))
    named = {*re.findall(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}\b", texts)}
    gone = [
        c
        for c in named
        if provenance.git("merge-base", "--is-ancestor", c, "HEAD") is None
    ]
    assert "46dc51e" in named and gone == []


# Names of statements, sets and exponents may contain digits though they are not
# measured.
DIGITS = (
    r"\$[^$]*\$|(Lemmas?|Theorems?|Algorithm|Assumption|Example|Figure) [\d-]+( and [\d-]+)?"
    r"|CIFAR-10|`cifar10`|float64|arXiv \d{4}\.\d{5}(, \d{4}\.\d{5})*|p = [\d., and]+"
)
SAYS_NO = r"\*\*[^*]*(not|fails|only|alone)\b[^*]*\*\*"


def typed(text):
    """Return the first digit of a sentence that is not in a quoted number, formula or
    name.
    """
    return re.search(r"\d", re.sub(DIGITS, "", figures.FIELD.sub("", text)))


def faults_of_entry(entry):
    path = figures.FIGURES / entry.scale / f"{entry.slug}.json"
    page = entry.notebook
    saved = RECORDS[path]
    sentence = entry.sentence
    real = any(row["source"] in ("data_dir", "data", "hub") for row in saved["data"])
    failing = not all(claim["holds"] for claim in saved["claims"])
    program = "papers.studies.confirm" if entry.fresh else "lib.training"
    hours = rf"`python -m {program} {entry.trains}`, \d+\.\d processor hours"
    return {
        "is of another notebook": page.name != saved["notebook"],
        "is of another paper": saved["paper"] not in page.paper,
        "has real data, or no minutes": real > page.real_data
        or entry.scale not in page.minutes,
        # If the data have not decided, there is no number to quote. Otherwise there is
        # one.
        "quotes nothing": not figures.FIELD.search(sentence)
        and not sentence.startswith("**undecided**"),
        "quotes what is not there": "no value" in figures.filled(sentence, saved),
        "hides a failing claim, or invents one": failing
        != bool(re.search(SAYS_NO, sentence)),
        "a number typed by hand": typed(sentence + entry.finding + entry.failure),
        "a kind of line that is not there": not kinds(sentence) <= lines(path),
        "trains otherwise": entry.trains
        and not (
            entry.trains in STUDIES
            and re.fullmatch(hours, figures._hours(entry, saved))
            and "DATA_DIR" not in entry.command
        ),
    }


def test_the_index_has_every_figure_at_its_largest_scale_and_tells_the_truth():
    largest = {}
    for scale in pages.SCALES:
        largest |= {
            path.stem: scale for path in (ROOT / "figures" / scale).glob("*.json")
        }
    assert {entry.slug: entry.scale for entry in ENTRIES} == largest
    titles = {entry.title for entry in ENTRIES}
    assert len(ENTRIES) == len(largest) == len(titles) and all(titles)
    assert [page.name for page, _ in INDEX] == [path.stem for path in PAGES]
    assert_faultless(
        {entry.slug: entry for entry in ENTRIES}, faults_of_entry, "mend the index"
    )


@pytest.mark.parametrize("name", figures.FILES)
def test_the_tables_say_what_the_records_say(name):
    text = (ROOT / name).read_text("utf-8")
    assert figures.MARKED.search(text)
    assert figures.renewed(text) == text, "run `python -m companion.tables`"


@pytest.mark.parametrize("edited", [".py", ".ipynb"])
def test_a_sync_of_pairs_that_nobody_edited_changes_no_file(edited, tmp_path):
    shutil.copy(FOLDER / "jupytext.toml", tmp_path)
    names = ["00_attention_by_hand", "11_long_horizon"]
    before = {}
    for path in (
        FOLDER / f"{name}{end}" for name in names for end in (".py", ".ipynb")
    ):
        before[path.name] = path.read_bytes()
        shutil.copy(path, tmp_path)
    for name in names:  # the newer one of a pair is what jupytext takes
        later = time.time() + 10
        os.utime(tmp_path / f"{name}{edited}", (later, later))
    scripts = [str(tmp_path / f"{name}.py") for name in names]
    subprocess.run(
        [sys.executable, "-m", "jupytext", "--sync", *scripts],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_each_copy_has_the_metadata_that_a_sync_would_write():
    table = files.read_table(FOLDER / "jupytext.toml")
    for path in PAGES:
        copy = nbformat.read(path.with_suffix(".ipynb"), 4)
        assert copy.metadata["jupytext"] == table, path.name
        blank = [
            [cell.metadata.get(stored.BLANK_LINES) for cell in pair.cells]
            for pair in (read(path), copy)
        ]
        assert blank[0] == blank[1], path.name
