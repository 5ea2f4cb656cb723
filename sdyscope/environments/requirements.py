"""What an environment has besides JAX: the user's pins, and what sdyscope itself needs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from sdyscope.errors import TargetError, read_text

#: In place of a file: what is installed beside sdyscope.
INSTALLED = "installed"

#: JAX's own packages, of which an environment has the versions that fit its JAX.
_OF_JAX = re.compile(
    r"jax|jaxlib|jax-(?:cuda|rocm)\d*-(?:plugin|pjrt)|libtpu(?:-nightly)?|jax-metal"
)
#: What a plugin for CUDA brings, in its versions.
_OF_CUDA = re.compile(r"nvidia-.*")
_CUDA_PLUGIN = re.compile(r"jax-cuda(\d+)-(?:plugin|pjrt)")
_ROCM_PLUGIN = re.compile(r"jax-rocm(\d+)-(?:plugin|pjrt)")
#: What `pip freeze` says of tools, which an environment brings itself.
_TOOLS = frozenset(("pip", "setuptools", "wheel", "uv", "sdyscope"))
_HASH = re.compile(r"\s--hash[= ]\S+")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_NESTED = re.compile(r"(?:-r|--requirement)[= ]?\s*(\S+)")


@dataclass(frozen=True, slots=True)
class Requirements:
    """What to install besides JAX.

    Attributes:
        lines: lines of a requirements file: pins and options.
        extras: extras of JAX that stand for its plugins: `tpu`, `cuda12`.
    """

    lines: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines or self.extras)

    def and_(self, lines: Iterable[str], extras: Iterable[str] = ()) -> Requirements:
        """The same with more."""
        return Requirements(
            tuple(dict.fromkeys((*self.lines, *lines))),
            tuple(sorted({*self.extras, *extras})),
        )


def read_requirements(word: str | None) -> Requirements:
    """The user's pins, without JAX and its plugins, for which extras of JAX stand.

    Args:
        word: a requirements file, or a `pyproject.toml`, whose dependencies are taken; `installed`
            for what is installed beside sdyscope; None for nothing.

    Raises:
        TargetError: the file can't be read.
    """
    if word is None:
        return Requirements()
    if word == INSTALLED and not Path(word).exists():
        return _sifted(_installed())
    path = Path(word)
    if path.name == "pyproject.toml":
        return _sifted(_of_project(path))
    return _sifted(_lines(path, ()))


def _installed() -> Iterator[str]:
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        # What was installed from a folder or a repository is not in an index.
        if name and distribution.read_text("direct_url.json") is None:
            versions.setdefault(canonicalize_name(name), distribution.version)
    return (f"{name}=={version}" for name, version in sorted(versions.items()))


def _of_project(path: Path) -> Iterator[str]:
    try:
        project = tomllib.loads(read_text(path, "requirements")).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"It is not TOML: {error}.", file=path) from error
    dependencies = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(dependencies, list):
        raise TargetError(
            "It has no list of dependencies under [project].",
            file=path,
            hint="Give a requirements file, such as `pip freeze` prints.",
        )
    return map(str, dependencies)


def _lines(path: Path, within: Sequence[Path]) -> Iterator[str]:
    """The lines of a file and of those that it includes, without comments and hashes."""
    if path.resolve() in within:
        raise TargetError("It includes itself.", file=path)
    for raw in read_text(path, "requirements").replace("\\\n", " ").splitlines():
        line = _HASH.sub("", _COMMENT.sub("", raw)).strip()
        if nested := _NESTED.fullmatch(line):
            yield from _lines(path.parent / nested[1], (*within, path.resolve()))
        elif line and line != "--require-hashes":
            yield line


def _sifted(lines: Iterable[str]) -> Requirements:
    kept: list[str] = []
    extras: set[str] = set()
    cuda: set[str] = set()
    nvidia: list[str] = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            kept.append(line)  # An option, a path or an address: the installer's to read.
            continue
        name = canonicalize_name(requirement.name)
        if _OF_CUDA.fullmatch(name):
            nvidia.append(line)
        elif name not in _TOOLS and not _OF_JAX.fullmatch(name):
            kept.append(line)
        if name == "jax":
            extras |= requirement.extras
        elif name.startswith("libtpu"):
            extras.add("tpu")
        elif plugin := _CUDA_PLUGIN.fullmatch(name):
            cuda.add(plugin[1])
        elif plugin := _ROCM_PLUGIN.fullmatch(name):
            extras.add(f"rocm{plugin[1]}-local")
    if cuda and not any(extra.startswith("cuda") for extra in extras):
        # With nvidia's wheels, or with the CUDA of the machine.
        extras |= {f"cuda{number}{'' if nvidia else '-local'}" for number in cuda}
    if not any(extra.startswith("cuda") for extra in extras):
        kept += nvidia
    return Requirements(tuple(dict.fromkeys(kept)), tuple(sorted(extras)))


def extra_for(platform: str) -> tuple[str, ...]:
    """The extra of JAX that has the compiler of a platform, there or not."""
    return {"tpu": ("tpu",), "cuda": ("cuda12-local",)}.get(platform, ())


def of_sdyscope(extra: str = "") -> tuple[str, ...]:
    """What this sdyscope needs besides JAX.

    Args:
        extra: one of its extras, whose requirements are wanted too.
    """
    requirements = []
    for text in metadata.requires("sdyscope") or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": extra}):
            continue
        if not _OF_JAX.fullmatch(canonicalize_name(requirement.name)):
            requirement.marker = None
            requirements.append(str(requirement))
    return tuple(requirements)
