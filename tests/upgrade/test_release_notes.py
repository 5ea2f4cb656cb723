"""What the notes of a release say of sharding; the changelog is a file here."""

import urllib.request
from urllib.error import URLError

import pytest

from sdyscope.upgrade.release_notes import notes_of

CHANGELOG = """# Change log

## Unreleased

* Breaking changes:
  * `jax.foo` is gone.

## JAX 0.12.0 (September 1, 2026)

* New features:
  * `jax.bar` takes a mesh, and
    says so.
  * `jnp.baz` is faster.

* Bug fixes
  * An all_gather in a loop is no longer
    repeated.

## JAX 0.11.0 (July 16, 2026)

* Changes:
  * `jnp.zap` is slower.

## jax 0.4.30 (June 18, 2024)

* Changes
  * Shardings of jax.

## jaxlib 0.4.30 (June 18, 2024)

  * Shardings of jaxlib.
"""


@pytest.fixture
def changelog(tmp_path):
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG)
    return str(file)


@pytest.mark.parametrize(
    ("release", "lines"),
    [
        (
            "0.12.0",
            ["`jax.bar` takes a mesh, and says so.",
             "An all_gather in a loop is no longer repeated."],
        ),
        ("0.11.0", []),
        ("0.4.30", ["Shardings of jax.", "Shardings of jaxlib."]),
    ],
)  # fmt: skip
def test_the_items_about_sharding_are_taken(changelog, release, lines):
    note = notes_of(release, changelog)
    assert (list(note.lines), note.missing) == (lines, "")
    assert note.link.endswith(f"#jax-{release.replace('.', '-')}")


def test_a_release_without_notes_says_so_with_the_link(changelog):
    note = notes_of("0.11.1", changelog)
    assert note.missing == "The changelog has no notes of JAX 0.11.1."
    assert note.link.startswith("https://docs.jax.dev/")


def test_no_changelog_is_a_sentence(monkeypatch):
    def urlopen(*_, **__):
        raise URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert "can't be fetched: Name or service not known" in notes_of("0.12.0", None).missing
    assert "can't be read" in notes_of("0.12.0", "/nowhere/CHANGELOG.md").missing
