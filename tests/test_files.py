"""Tests of lib.files.

A failure means that a write that is killed or fails leaves half a file, half a folder,
or litter.
"""

import errno
import os

import pytest

from lib import files


def killed_at(call, action):
    """Do `action` in a process that dies at the given call of os.rename or
    os.replace.
    """
    child = os.fork()
    if child == 0:
        calls = []

        def counted(act):
            def one(*arguments):
                calls.append(act)
                if len(calls) == call:
                    os._exit(9)
                act(*arguments)

            return one

        os.rename, os.replace = counted(os.rename), counted(os.replace)
        action()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content(folder):
    if folder.exists():
        return {path.name: path.read_text() for path in folder.iterdir()}
    return None


def fill(folder, text):
    for name in ("a", "b", text):
        files.write(folder / name, text.encode())


def test_a_folder_is_replaced_whole_whenever_the_process_is_killed(tmp_path):
    old = dict.fromkeys(("a", "b", "old"), "old")
    new = dict.fromkeys(("a", "b", "new"), "new")
    seen = []
    for call in (1, 2, 3):
        place = tmp_path / f"{call}" / "page"
        fill(place, "old")
        fill(tmp_path / "fresh", "new")

        def replace(place=place):
            return files.replace_folder(tmp_path / "fresh", place)

        status = killed_at(call, replace)
        seen.append(content(place))
        assert (status, seen[-1]) in [(9, old), (9, None), (0, new)]
        # The next one succeeds, and removes what was left.
        if status:
            replace()
        assert content(place) == new and os.listdir(place.parent) == ["page"]
    assert seen == [old, None, new]


def test_what_a_killed_write_left_is_removed_by_the_next_one(tmp_path):
    path = tmp_path / "record[1].json"
    files.write(path, b"old")
    assert killed_at(1, lambda: files.write(path, b"new")) == 9
    assert path.read_bytes() == b"old" and len(os.listdir(tmp_path)) == 2
    (
        tmp_path / ".other.json.0123.part"
    ).touch()  # a temporary file of another file, which may be in use
    files.write(path, b"new")
    assert path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == [".other.json.0123.part", "record[1].json"]


def test_a_temporary_file_of_a_living_process_stays(tmp_path):
    path = tmp_path / "a.json"
    with open(files.temporary_beside(path), "xb") as stream:
        files._fill(stream, b"mine", path)
        files.write(path, b"another's")
        assert os.path.exists(stream.name)


def test_git_ignores_temporary_files():
    ignored = (files.ROOT / ".gitignore").read_text().splitlines()
    assert f".*{files.PART}" in ignored


def test_several_files_are_written_or_none(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    files.write_all(dict.fromkeys(paths[:2], b"old"))
    paths[2].mkdir()  # so that nothing can take its place
    with pytest.raises(IsADirectoryError):
        files.write_all(dict.fromkeys(paths, b"new"))
    assert [path.read_bytes() for path in paths[:2]] == [b"old", b"old"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]


def test_a_full_disk_is_named_with_the_file(tmp_path, monkeypatch):
    def full(stream):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError) as caught:
        files.write(tmp_path / "a.json", b"")
    assert (
        files.sentence(caught.value)
        == f"No space left on device: {tmp_path / 'a.json'}"
    )
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for read in (files.read_object, files.read_table):
        with pytest.raises(
            ValueError, match=f"{tmp_path} cannot be read: Is a directory"
        ):
            read(tmp_path)
    assert files.read_table(tmp_path / "none.toml") == {}
    with pytest.raises(ValueError, match="none.json cannot be read: No such file"):
        files.read_object(tmp_path / "none.json")


def test_remove_takes_files_folders_and_what_is_not_there(tmp_path):
    (tmp_path / "folder" / "below").mkdir(parents=True)
    (tmp_path / "file").touch()
    os.symlink(tmp_path / "folder", tmp_path / "link")
    for name in ("link", "file", "none", "folder"):
        files.remove(tmp_path / name)
    assert os.listdir(tmp_path) == []
