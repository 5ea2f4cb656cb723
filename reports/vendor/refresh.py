"""Fetches what the report bundles from others, at the versions that `vendor.json` pins.

    python reports/vendor/refresh.py              writes the files of the pinned versions again
    python reports/vendor/refresh.py dagre 3.1.3  pins another version, and writes it

Each package comes through npm, and its checksum is compared with the pinned one. A file is
the package's own module with its licence before it, so that every copy of a report has it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PINNED = HERE / "vendor.json"


def main(arguments: list[str]) -> None:
    """Writes every file, with another version of one where that is asked for."""
    pinned = json.loads(PINNED.read_text())
    if arguments:
        name, version = arguments
        pinned[name]["version"] = version
        _, pinned[name]["integrity"] = packed_by_npm(pinned[name])
    for name, package in pinned.items():
        text = bundled(package)
        (HERE / f"{name}.js").write_text(text, encoding="utf-8")
        package["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        print(f"{name} {package['version']}: {len(text):,} characters")
    PINNED.write_text(json.dumps(pinned, indent=2) + "\n")


def packed_by_npm(package: dict[str, Any]) -> tuple[bytes, str]:
    """A version of a package as npm packs it, and its checksum."""
    with tempfile.TemporaryDirectory() as folder:
        asked = ["npm", "pack", "--json", f"{package['package']}@{package['version']}"]
        done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True)
        (packed,) = json.loads(done.stdout)
        (file,) = Path(folder).glob("*.tgz")
        return file.read_bytes(), str(packed["integrity"])


def bundled(package: dict[str, Any]) -> str:
    """The module of a package, its licences before it."""
    packed, _ = packed_by_npm(package)
    kind, _, wanted = package["integrity"].partition("-")
    if base64.b64encode(hashlib.new(kind, packed).digest()).decode() != wanted:
        raise SystemExit(f"{package['package']} {package['version']} is not what vendor.json pins.")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        texts = [
            read(archive, f"package/{path}") for path in (*package["licences"], package["module"])
        ]
    *licences, module = texts
    # Neither file is in the page.
    module = re.sub(r"\n?/\*! For license information.*?\*/|\n//# sourceMappingURL=.*", "", module)
    notices = "\n\n".join(text.strip().strip("/*").strip() for text in licences)
    head = f"{package['package']} {package['version']} ({package['licence']}), {package['home']}"
    return f"/*!\n{head}\n\n{notices}\n*/\n{module.strip()}\n"


def read(archive: tarfile.TarFile, path: str) -> str:
    """The text of a file in a package."""
    file = archive.extractfile(path)
    if file is None:
        raise SystemExit(f"The package has no {path}.")
    return file.read().decode()


if __name__ == "__main__":
    main(sys.argv[1:])
