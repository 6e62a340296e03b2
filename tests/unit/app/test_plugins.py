"""Components by name: an error is one line that names the component, file and line."""

import sys

import pytest

import strategies
import tasks
from fedavg_app.client.mods import load_mods
from fedavg_app.errors import ConfigError
from fedavg_app.plugins import load_component


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Return a function that writes a module; its import is undone after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(name, text):
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    yield write
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"plugin", "plugins"}:
            del sys.modules[name]


# The keys whose values name components, and what loads these.
LOADERS = {
    "strategy": lambda name: load_component("strategy", name, strategies.load),
    "task": lambda name: load_component("task", name, tasks.load),
    "client-mods": load_mods,
}


def refusal(key, name):
    """Return why the key's value is refused."""
    with pytest.raises(ConfigError) as caught:
        LOADERS[key](name)
    text = str(caught.value)
    assert text.startswith(f"{key} = {name!r}: ")
    assert "\n" not in text
    return text.removeprefix(f"{key} = {name!r}: ")


@pytest.mark.parametrize("key", LOADERS)
def test_missing_module_is_named_with_what_to_do(key):
    assert refusal(key, "plugin_x:THING") == (
        "there is no module 'plugin_x'; install it, or put it on PYTHONPATH"
    )


@pytest.mark.parametrize("key", LOADERS)
def test_misspelt_attribute_gets_a_suggestion(key, write_module):
    write_module("plugin", "THINGS = 1")
    reason = "module 'plugin' has no attribute 'THING'; did you mean THINGS?"
    assert refusal(key, "plugin:THING") == reason


BROKEN = {
    "value": ("import os\nraise ValueError('bad value')\n", 2, "ValueError: bad value"),
    "attribute": ("\n\nimport os\nos.nonsense\n", 4, "AttributeError: module 'os' has no attr"),
    "other import": ("import no_such_library\n", 1, "ModuleNotFoundError: No module named 'no_s"),
    "name in import": ("from os import nonsense\n", 1, "ImportError: cannot import name 'nonsense"),
    "zero division": ("def f():\n    return 1 / 0\n\n\nf()\n", 2, "ZeroDivisionError: division by"),
    "syntax": ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax ("),
}


@pytest.mark.parametrize("key", LOADERS)
@pytest.mark.parametrize("kind", BROKEN)
def test_module_that_raises_is_shown_with_its_error_file_and_line(key, kind, write_module):
    text, line, error = BROKEN[kind]
    path = write_module("plugin", text)
    shown = refusal(key, "plugin:THING")
    assert shown.startswith(f"its module raised {error}")
    assert shown.endswith(f"({path}, line {line})")
    assert shown.count(", line ") == 1


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("client-mods", "json:JSONDecoder", "a class; name an instance of it, made in a module"),
        ("strategy", "json:JSONDecoder", "'json:JSONDecoder' is not a subclass of Strategy"),
        ("strategy", "fedfoo", "'fedfoo' is no strategy; known: cafe, compressed, eden"),
        ("task", "json:JSONDecoder", "'json:JSONDecoder' is not a tasks.base.Task"),
        ("task", "mnits", "known tasks: cifar10-cnn, cifar10-vgg11"),
    ],
)
def test_object_of_the_wrong_type_is_refused(key, name, expected):
    assert refusal(key, name).startswith(expected)


@pytest.mark.parametrize("key", LOADERS)
def test_object_defined_in_the_main_script_is_refused(key):
    """A notebook's cell, or `python my_task.py`: clients run in other processes."""
    assert refusal(key, "__main__:MINE").startswith("clients run in separate processes")
