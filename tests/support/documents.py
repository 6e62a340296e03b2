"""Parsing of the documents: their code blocks, the paths they name, the commands they show."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").rglob("*.md")),
]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w./-]+\.(?:py|toml))\n")
SPAN = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(
    r"(?:flwr run|(?:uv run )?python3? simulation\.py (?:run|central|partition))\b"
)
# A span with one of these programs and two words more is a command; a shorter one names a program.
SPANNED = re.compile(
    r"make \S|((\.venv/bin/)?(python3?|pip|fedavg|flwr(-datasets)?)|deployment/\S+|curl|docker|"
    r"export|journalctl|openssl|ray|source|sqlite3|ssh|systemctl|tensorboard|uv|wandb) \S+ \S"
)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, content) of every fenced block."""
    return BLOCK.findall(text)


def examples(document: Path) -> dict[str, str]:
    """Return the code blocks that begin with a comment naming their file, by that name."""
    found = [content for _, content in blocks(document.read_text())]
    return {match[1]: content for content in found if (match := NAMED.match(content))}


def spans(text: str) -> list[str]:
    """Return the text in backticks outside of fenced blocks."""
    return SPAN.findall(BLOCK.sub("", text))


def shell_lines(text: str) -> list[str]:
    """Return the commands in a document's shell blocks, each on one line."""
    return [
        " ".join(line.partition("  #")[0].split())
        for language, content in blocks(text)
        if language == "sh"
        for line in content.replace("\\\n", " ").splitlines()
    ]


def shell_commands(text: str) -> list[str]:
    """Return the commands in a document's shell blocks and in its prose, each on one line."""
    return [*shell_lines(text), *(span for span in spans(text) if SPANNED.match(span))]


def commands(text: str) -> list[list[str]]:
    """Return the words of each `flwr run` and `simulation.py` command shown."""
    lines = [line for line in shell_commands(text) if COMMAND.match(line)]
    return [shlex.split(line, comments=True) for line in lines]
