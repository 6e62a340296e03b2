"""Prints the lines of Python in each folder beside its budget; fails where one is over it.

    python .ci/budgets.py

A change that needs more lines raises the number in budgets.toml in its own commit, whose message
says what the lines replace.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def count(folder: str) -> tuple[int, int]:
    """Return the lines and the number of the Python files that git knows in a folder."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name.endswith(".py")]
    texts = [file.read_text() for file in files if file.exists()]
    return sum(len(text.splitlines()) for text in texts), len(texts)


def main() -> int:
    """Print the table; return 1 where a folder is over its budget."""
    budgets = tomllib.loads((ROOT / "budgets.toml").read_text())
    over = False
    print(f"{'folder':<22}{'modules':>8}{'lines':>8}{'budget':>8}{'left':>7}")
    for folder, budget in budgets["lines"].items():
        lines, modules = count(folder)
        over |= lines > budget
        mark = "  over its budget" if lines > budget else ""
        print(f"{folder:<22}{modules:>8,}{lines:>8,}{budget:>8,}{budget - lines:>7,}{mark}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
