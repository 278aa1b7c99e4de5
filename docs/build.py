"""Builds the site into docs/_site, and fails at the first thing on it that is not so.

::

    python -m docs.build

A public name without a docstring, an example that prints something else than it shows, a reference or a link
that leads nowhere, and every warning of Sphinx end it with 1. Notebooks are on the site where
``python -m experiments.notebooks`` has published them before.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs import checks

DOCS = Path(__file__).resolve().parent


def found_wrong() -> list[str]:
    """What is wrong with docstrings and pages before they are built."""
    wrong = [f"{name} has no docstring" for name in checks.undocumented()]
    wrong += [said for name in checks.modules_with_examples() if (said := checks.failing_examples(name))]
    for page in checks.pages():
        name = page.relative_to(checks.ROOT)
        wrong += [f"{name}: broken link {target}" for target in checks.broken_links(page)]
        if page.parent != checks.ROOT:
            wrong += [f"{name} does not show what it prints: {line}" for line in checks.failing_blocks(page)]
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """0 where the site was built and nothing was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.build", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=DOCS / "_site", help="folder of the site")
    parser.add_argument("--pages-only", action="store_true", help="run no examples: pages and their links")
    given = parser.parse_args(arguments)
    wrong = [] if given.pages_only else found_wrong()
    for line in wrong:
        print(line, file=sys.stderr)
    # All pages anew: Sphinx does not see that a docstring has changed in a module that is imported.
    options = ["-b", "html", "-E", "-W", "--keep-going", "-n", "-q", str(DOCS), str(given.out)]
    with contextlib.chdir(DOCS.parent):
        code = build_main(options)
    if code == 0:
        wrong += (broken := checks.broken_in_site(given.out))
        for line in broken:
            print(f"broken link in {line}", file=sys.stderr)
    if not (wrong or code):
        print(f"built {os.path.relpath(given.out / 'index.html')}")
    return int(bool(wrong or code))


if __name__ == "__main__":
    sys.exit(main())
