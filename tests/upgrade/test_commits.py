"""Commits of a repository of the test's own, and a checkout that is gone whatever happens."""

import os
import signal
import subprocess
import sys
import time

import pytest
from git_commands import git

from sdyscope.errors import TargetError
from sdyscope.upgrade.bisected import bisect
from sdyscope.upgrade.commits import Repository


@pytest.fixture
def root(tmp_path):
    """Three commits of a file, and a change that is not committed."""
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    for text in ("one\n", "one\ntwo\n", "one\nTWO\nthree\n"):
        (path / "file.txt").write_text(text)
        git(path, "add", "-A")
        git(path, "commit", "-q", "-m", f"Says {text.split()[-1]}")
    (path / "file.txt").write_text("not committed\n")
    (path / "own.txt").write_text("of the user\n")
    return path


def state(root):
    return (
        git(root, "status", "--porcelain"),
        git(root, "worktree", "list"),
        git(root, "rev-parse", "HEAD"),
        git(root, "branch", "--list"),
        (root / "file.txt").read_text(),
    )


def test_the_checkout_has_each_commit_and_the_users_tree_stays_as_it_is(root):
    before = state(root)
    repository = Repository(root)
    with repository.checkout() as checkout:
        for revision, text in (("HEAD~2", "one\n"), ("HEAD", "one\nTWO\nthree\n")):
            checkout.move(repository.commit(revision).hash)
            assert (checkout.folder / "file.txt").read_text() == text
            assert not (checkout.folder / "left").exists()
            (checkout.folder / "left").touch()
        assert state(root)[0] == before[0]
        path = checkout.path
    assert not path.exists()
    assert state(root) == before


def test_hooks_of_the_user_do_not_run(root, tmp_path):
    hook = root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    repository = Repository(root)
    with repository.checkout() as checkout:
        checkout.move(repository.commit("HEAD~1").hash)
    assert not (tmp_path / "ran").exists()


def test_folders_of_the_repository_are_told_in_the_checkout(root, tmp_path):
    (root / "src").mkdir()
    repository = Repository(root / "src")
    with repository.checkout() as checkout:
        assert checkout.folder == checkout.path / "src"
        assert checkout.mirrored([str(root / "src"), str(tmp_path), str(root)]) == [
            str(checkout.path / "src"),
            str(checkout.path),
        ]


def test_the_lines_that_a_commit_changes(root):
    repository = Repository(root)
    found = list(repository.changed_lines(repository.commit("HEAD").hash))
    assert found == [("file.txt", 2, "TWO"), ("file.txt", 3, "three")]
    assert list(repository.changed_lines(repository.commit("HEAD~2").hash)) == [
        ("file.txt", 1, "one")
    ]


def test_a_history_with_a_merge_is_searched(root):
    """The change is on a side branch: its own commit is found, not the merge."""
    git(root, "stash", "-q", "-u")
    base = git(root, "rev-parse", "HEAD")
    for branch in ("side", "other"):
        git(root, "checkout", "-q", "-b", branch, base)
        for number in range(4):
            (root / f"{branch}.txt").write_text(f"{number}\n")
            git(root, "add", "-A")
            git(root, "commit", "-q", "-m", f"{branch} {number}")
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "Merges", "side", "other")
    planted = git(root, "rev-parse", "side~1")
    repository = Repository(root)
    judged = []

    def is_good(commit):
        judged.append(commit)
        return planted not in git(root, "rev-list", commit).split()

    outcome = bisect(repository, base, git(root, "rev-parse", "HEAD"), is_good)
    assert outcome.first == planted
    assert len(judged) <= 4  # of 9


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("HEAD~9", "HEAD", "no commit 'HEAD~9'"),
        ("--all", "HEAD", "not a revision"),
        ("HEAD", "HEAD", "name the same commit"),
        ("HEAD", "HEAD~1", "not an ancestor"),
    ],
)
def test_ends_that_are_none_are_refused(root, good, bad, message):
    repository = Repository(root)
    with pytest.raises(TargetError, match=message):
        repository.check_order(repository.commit(good), repository.commit(bad))


def test_a_folder_without_a_repository_is_an_error(tmp_path):
    with pytest.raises(TargetError, match="git says: not a git repository"):
        Repository(tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_process_leaves_no_worktree(root, signum):
    code = (
        "import signal, sys, time; from pathlib import Path; "
        "from sdyscope.upgrade.commits import Repository\n"
        # In a job in the background, SIGINT is ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Repository(Path(sys.argv[1])).checkout() as checkout:\n"
        "    checkout.move('HEAD')\n    print(checkout.path, flush=True)\n    time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    path = process.stdout.readline().strip()
    assert path in git(root, "worktree", "list")
    process.send_signal(signum)
    process.wait()
    end = time.monotonic() + 60
    while "\n" in git(root, "worktree", "list") or os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.1)
