"""Parts of a strategy by name or table; test_init and others have the parts themselves."""

import pytest

from strategies.by_name import build_part, read_part


class Part:
    def __init__(self, size: int = 1) -> None:
        self.size = size


class Special(Part):
    """A kind of `Part`."""


PARTS = {"part": f"{__name__}:Part", "special": f"{__name__}:Special"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("part", ("part", {})),
        ({"name": "part"}, ("part", {})),
        ({"name": "part", "two-words": 0.5}, ("part", {"two_words": 0.5})),
    ],
)
def test_name_and_arguments_of_a_name_or_a_table(given, expected):
    assert read_part("uplink", given) == expected


@pytest.mark.parametrize("given", [3, None, ["sign"], {}, {"name": 3}, {"sparsity": 0.5}])
def test_value_that_is_neither_is_named_by_its_key(given):
    with pytest.raises(ValueError, match=r"^uplink = .*: give a name, or a table such as {name = "):
        read_part("uplink", given)


def test_part_is_made_with_its_arguments():
    assert build_part(Part, "part", PARTS, "special", {"size": 3}).size == 3
    assert type(build_part(Part, "part", PARTS, f"{__name__}:Special")) is Special


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("pat", {}, "a part 'pat': known are part, special; or module:Class"),
        ("builtins:dict", {}, "a part 'builtins:dict' is not a subclass of Part"),
        ("part", {"size": "3"}, "Part: size = '3' is not of type int"),
        ("part", {"two_sizes": 1}, "a part 'part' does not take two-sizes; it takes: size"),
    ],
)
def test_part_that_cannot_be_made_is_named(name, arguments, reason):
    with pytest.raises(ValueError, match=reason):
        build_part(Part, "a part", PARTS, name, arguments)
