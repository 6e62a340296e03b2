"""Generates docs/configuration.md from fedavg_app/config.py: run it as a script."""

from pathlib import Path

from pydantic.fields import FieldInfo

from fedavg_app.cli.options import GROUPS
from fedavg_app.config import CentralConfig, Effect, RunConfig, TrainingConfig, kebab

PAGE = Path(__file__).with_name("configuration.md")

HEAD = """# Configuration

These are all keys of the run config. `flwr run . -c "seed=2"`, `python simulation.py run --seed 2` and `--config FILE.toml` with a line `seed = 2` take the same keys; the defaults are in `[tool.flwr.app.config]` of `pyproject.toml`.
This page is generated from `fedavg_app/config.py` by `python docs/generate_configuration.py`.

The column "Changes" says how a key affects the result of a run:

- "result": it changes the result, and a resumed run must have the same value.
- "result; free on resume": it changes the result, but a resumed run may have another value.
- "nothing": it changes only where and how the run is done. `min-nodes` and `node-timeout` can still decide which clients take part in a round.
"""


def page() -> str:
    """Return the page."""
    fields = {kebab(name): field for name, field in RunConfig.model_fields.items()}
    lines = [HEAD]
    for title, keys in GROUPS.items():
        lines += [
            f"## {title}",
            "",
            *_table({key: fields.pop(key) for key in keys if key in fields}),
            "",
        ]
    if fields:
        raise ValueError(f"keys without a group: {', '.join(fields)}")
    own = {
        kebab(name): field
        for name, field in CentralConfig.model_fields.items()
        if field is not TrainingConfig.model_fields.get(name)
        and (name not in TrainingConfig.model_fields or _differs(name, field))
    }
    lines += [
        "## Central training",
        "",
        "`python simulation.py central` takes the keys that do not concern clients; these differ:",
        "",
        *_table(own),
        "",
        "The arguments of partitions are in [Partitions](tasks.md#partitions), those of strategies "
        "in [Methods](api/strategies.md#methods) and in the README.",
    ]
    return "\n".join(lines) + "\n"


def _differs(name: str, field: FieldInfo) -> bool:
    base = TrainingConfig.model_fields[name]
    return (field.default, field.description) != (base.default, base.description)


def _table(fields: dict[str, FieldInfo]) -> list[str]:
    rows = [
        f"| `{key}` | {_value(field.default)} | {field.description} | {_effect(field)} |"
        for key, field in fields.items()
    ]
    return ["| Key | Default | Meaning | Changes |", "| --- | --- | --- | --- |", *rows]


def _value(default: object) -> str:
    return '`""`' if default == "" else f"`{default}`"


def _effect(field: FieldInfo) -> str:
    return next((e.value for e in field.metadata if isinstance(e, Effect)), "result")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
