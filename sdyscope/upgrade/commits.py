"""Commits of a git repository: which may have changed something, and a checkout to look at one.

The checkout is one worktree in a temporary folder, which is moved from commit to commit, so that a
file has the same path in all of them. The user's own tree, index and branches stay as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sdyscope.errors import TargetError
from sdyscope.process.scratch import scratch_folder

#: git's `--bisect-all`: a commit, and how far it is from the nearer end.
_HALVING = re.compile(r"^([0-9a-f]{40,64})(?: \((.*)\))?$", re.MULTILINE)
_DISTANCE = re.compile(r"dist=(\d+)")
#: A part of a diff without context: the first line of the new file, and how many lines.
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")

#: What a hook of git has in its environment, which names another repository's parts.
_OF_GIT = frozenset(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"))

#: What waits until the process that it belongs to is gone, however it went, and then removes its
#: worktree: of a process that was killed nothing else can.
_GUARD = """
import shutil, subprocess, sys, time
sys.stdin.buffer.read()
repository, worktree = sys.argv[1:]
for _ in range(20):
    subprocess.run(["git", "-C", repository, "worktree", "remove", "--force", "--force", worktree],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(worktree, ignore_errors=True)
    listed = subprocess.run(["git", "-C", repository, "worktree", "list", "--porcelain"],
                            capture_output=True, text=True).stdout
    if f"worktree {worktree}\\n" not in listed:
        break
    subprocess.run(["git", "-C", repository, "worktree", "prune"])
    time.sleep(0.25)
"""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.

    Attributes:
        hash: its whole hash.
        short: what git abbreviates it to.
        subject: first line of its message.
        author: who wrote it.
        date: when, ISO 8601.
    """

    hash: str
    short: str
    subject: str
    author: str
    date: str


class Repository:
    """A git repository.

    Args:
        folder: a folder in it.

    Raises:
        TargetError: git is not installed, or there is no repository with a working tree.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = self._git("rev-parse", "--show-toplevel").strip()
        self.root = Path(root)
        #: Where in the repository the folder is.
        self.inside = Path(os.path.relpath(folder.resolve(), self.root.resolve()))

    def _git(self, *words: str, where: Path | None = None) -> str:
        # No hook of the user's runs for a checkout that is not theirs.
        command = ["git", "-C", str(where or self.folder), "-c", f"core.hooksPath={os.devnull}"]
        try:
            done = subprocess.run(
                [*command, *words],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env={key: value for key, value in os.environ.items() if key not in _OF_GIT},
            )
        except OSError as error:
            raise TargetError(f"git can't be run: {error.strerror}.") from error
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise TargetError(f"git says: {lines[0].removeprefix('fatal: ')}")
        return done.stdout

    def commit(self, revision: str) -> Commit:
        """The commit that a revision names.

        Raises:
            TargetError: there is none.
        """
        if revision.startswith("-"):
            raise TargetError(f"{revision!r} is not a revision.")
        try:
            full = self._git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
        except TargetError as error:
            raise TargetError(
                f"There is no commit {revision!r} in this repository.",
                file=self.root,
                hint="A shallow clone has few of them: git fetch --unshallow.",
            ) from error
        text = self._git("log", "-1", "--no-show-signature", "--format=%H%n%h%n%s%n%an%n%aI", full)
        return Commit(*text.split("\n")[:5])

    def check_order(self, good: Commit, bad: Commit) -> None:
        """Finds ends that no commits lie between.

        Raises:
            TargetError: the good commit is not before the bad one.
        """
        if good.hash == bad.hash:
            raise TargetError(f"--good and --bad name the same commit, {good.short}.")
        base = self._git("merge-base", "--all", good.hash, bad.hash).split()
        if good.hash not in base:
            hint = "Exchange them." if bad.hash in base else "Name one of its ancestors."
            raise TargetError(f"{good.short} is not an ancestor of {bad.short}.", hint=hint)

    def candidates(self, good: Sequence[str], bad: str) -> Sequence[str]:
        """The commits that may be the first bad one, the best to judge first, as git says.

        See `bisected.History`.
        """
        without = [f"^{commit}" for commit in good]
        text = self._git("rev-list", "--bisect-all", bad, *without)
        commits = []
        for match in _HALVING.finditer(text):
            distance = _DISTANCE.search(match[2] or "")
            commits.append((int(distance[1]) if distance else 0, match[1]))
        every = self._git("rev-list", "--topo-order", bad, *without).split()
        at = {commit: number for number, commit in enumerate(every)}
        # Of two that halve them alike, the later one: if it is good, fewer are left.
        commits.sort(key=lambda commit: (-commit[0], at.get(commit[1], 0)))
        return [commit for _, commit in commits]

    def changed_lines(self, commit: str) -> Iterator[tuple[str, int, str]]:
        """The lines that a commit adds or changes: file, number and text of each.

        Of a merge, against its first parent.
        """
        parents = self._git("rev-list", "--parents", "-1", commit).split()[1:]
        base = parents[0] if parents else _EMPTY
        text = self._git(
            "diff", "--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/",
            "--dst-prefix=b/", base, commit,
        )  # fmt: skip
        file, number = "", 0
        for line in text.splitlines():
            if line.startswith("+++ "):
                file = line[6:] if line.startswith("+++ b/") else ""
            elif hunk := _HUNK.match(line):
                number = int(hunk[1])
            elif line.startswith("+") and file:
                yield file, number, line[1:]
                number += 1

    @contextlib.contextmanager
    def checkout(self) -> Iterator[Checkout]:
        """A worktree of the repository, removed at the end, or when this process is killed.

        Raises:
            TargetError: git can't make one.
        """
        with scratch_folder() as folder:
            path = Path(folder).resolve() / self.root.name
            guard = subprocess.Popen(
                [sys.executable, "-I", "-c", _GUARD, str(self.root), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Ctrl-C in the terminal is not for it.
                start_new_session=True,
            )
            try:
                self._git("worktree", "add", "--quiet", "--detach", "--no-checkout", str(path))
                yield Checkout(self, path)
            finally:
                assert guard.stdin is not None
                guard.stdin.close()
                guard.wait()


#: The tree without files, which a first commit is compared with.
_EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


@dataclass(frozen=True)
class Checkout:
    """The worktree.

    Attributes:
        repository: whose.
        path: its folder.
    """

    repository: Repository
    path: Path

    @property
    def folder(self) -> Path:
        """The folder in it that is the one in which the command was started."""
        return self.path / self.repository.inside

    def move(self, commit: str) -> None:
        """Checks out another commit; what was left by the one before is removed.

        Raises:
            TargetError: git can't.
        """
        git = self.repository._git
        git("checkout", "--quiet", "--force", "--detach", commit, where=self.path)
        git("clean", "--quiet", "-ffdx", where=self.path)

    def mirrored(self, paths: Sequence[str]) -> list[str]:
        """Folders of the repository, as they are in the worktree; others are left out."""
        root = self.repository.root.resolve()
        folders = []
        for path in paths:
            with contextlib.suppress(ValueError):
                folders.append(str(self.path / Path(path or ".").resolve().relative_to(root)))
        return folders
