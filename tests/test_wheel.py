"""Tests of the wheel.

A failure means that `pip install` lacks a module or template, or needs the repository.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from lib import files

OFFLINE = (
    "--no-index --no-deps --no-compile --disable-pip-version-check --quiet".split()
)
# a repository's folders, which a user of the wheel has not
LEFT_OUT = (
    "_DIR",
    "PYTHONPATH",
)


def run(*command, folder):
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith(LEFT_OUT)
    }
    command = [str(word) for word in command]
    asked = dict(capture_output=True, text=True)
    done = subprocess.run(command, cwd=folder, env=environment, **asked)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build a wheel from the sdist, so that both are tested.

    The build is in a copy, because setuptools leaves files behind.
    """
    copy = tmp_path_factory.mktemp("source")
    out = tmp_path_factory.mktemp("wheel")
    for name in ("lib", "companion", "papers", "notebooks"):
        left = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
        shutil.copytree(files.ROOT / name, copy / name, ignore=left)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(files.ROOT / name, copy)
    build = "from setuptools import build_meta; build_meta.build_{}({!r})".format
    run(sys.executable, "-c", build("sdist", str(out)), folder=copy)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    run(
        sys.executable,
        "-c",
        build("wheel", str(out)),
        folder=out / sdist.name[: -len(".tar.gz")],
    )
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Return the interpreter of a fresh environment with the wheel and our other
    packages.
    """
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, symlinks=True)
    python = place / "bin" / Path(sys.executable).name
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(run(python, "-c", purelib, folder=place).strip())
    # A path named in a .pth file is searched, but an editable install's own .pth in it
    # is not read.
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        wheel,
        *OFFLINE,
        folder=place,
    )
    return python


def test_it_has_every_module_and_template(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = {
            name.partition(".data/data/")[2] or name for name in archive.namelist()
        }
    sources = [
        path
        for package in ("lib", "companion", "papers")
        for path in (files.ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not path.name.startswith(".")
    ]
    assert len(sources) > 80
    assert {path.relative_to(files.ROOT).as_posix() for path in sources} <= packed


def test_without_the_repository_the_library_is_imported_and_trains(python, tmp_path):
    code = """
from lib import attention, dynamics, svm
tokens = attention.two_examples()
W_mm = svm.token_svm(tokens)
history = dynamics.train(tokens, dynamics.NGD(0.02), 100, targets={"W_mm": W_mm})
print(attention.__file__, history.alignment["W_mm"][0, -1] > history.alignment["W_mm"][0, 1])
"""
    place, turns = run(python, "-c", code, folder=tmp_path).split()
    assert files.ROOT not in Path(place).parents
    assert turns == "True"
