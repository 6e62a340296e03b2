"""Budgets: what their texts mean, and the keys that they go together with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedavg_app.budget import BYTES, SECONDS, Budget, parse_budget
from fedavg_app.config import parse_config
from fedavg_app.errors import ConfigError
from fedavg_app.results.history import RoundMetrics
from fedavg_app.training_plan import spent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 MB up", (Budget(50, "MB", "up"), "")),
        (" 1.5GB  down", (Budget(1.5, "GB", "down"), "")),
        ("300 kB both a client", (Budget(300, "kB", "both", each=True), "")),
        ("2 h on 4g", (Budget(2, "h"), "4g")),
        ("90 s", (Budget(90, "s"), "")),
        ("1e3 min on my links.toml", (Budget(1000, "min"), "my links.toml")),
    ],
)
def test_text_of_a_budget(text, expected):
    assert parse_budget(text) == expected


@pytest.mark.parametrize(
    "text",
    ["50 MB", "50 Mb up", "50 KB up", "0 MB up", "-1 MB up", "1e999 MB up", "2 h up",
     "2 h a client", "5 MB up on 4g", "2 weeks on 4g", "MB up", "2 h on "],
)  # fmt: skip
def test_invalid_budget_is_refused_with_the_valid_forms(text):
    with pytest.raises(ConfigError, match=r"budget = .*'50 MB up' for all clients.*'2 h on 4g'"):
        parse_budget(text)


@given(
    st.floats(1e-6, 1e9),
    st.one_of(
        st.tuples(st.sampled_from(list(SECONDS)), st.just(""), st.just(value=False)),
        st.tuples(
            st.sampled_from(list(BYTES)), st.sampled_from(["up", "down", "both"]), st.booleans()
        ),
    ),
)
def test_budget_is_read_back_from_its_text(amount, rest):
    once, _ = parse_budget(str(Budget(amount, *rest)))
    assert once == parse_budget(str(once))[0]
    assert once.amount == pytest.approx(amount, rel=1e-11)
    assert str(once).endswith(once.kind)


def test_links_are_named_in_the_budget_or_by_their_own_key():
    config = parse_config({"budget": "2 h on 4g"})
    assert (config.budget, config.links) == ("2 h", "4g")
    assert config == parse_config({"budget": " 2.0 h", "links": "4g"})
    assert config == parse_config({"budget": "2 h on 4g", "links": "4g"})


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"budget": "2 h"}, "budget = '2 h': name the links of the time"),
        ({"budget": "2 h on 4g", "links": "5g"}, "budget = '2 h on 4g': leave out 'on 4g'"),
        ({"budget": "2 MB"}, "budget = '2 MB': give bytes"),
    ],
)
def test_incompatible_keys_are_refused(keys, error):
    with pytest.raises(ConfigError, match=error):
        parse_config(keys)


def test_amount_that_rounds_have_spent():
    history = [RoundMetrics(0).with_totals(None)]
    for number, seconds in ((1, 90.0), (2, 30.0)):
        metrics = RoundMetrics(
            number, bytes_up=3_000_000, bytes_down=5_000_000, virtual_seconds={"round": seconds}
        )
        history.append(metrics.with_totals(history[-1]))
    found = {
        text: spent(parse_budget(text)[0], history, 4)
        for text in ("1 MB up", "1 kB down", "1 GB both", "1 MB both a client", "1 s", "1 min")
    }
    assert list(found.values()) == pytest.approx([6, 10_000, 0.016, 4, 120, 2])
    assert spent(parse_budget("1 MB up")[0], [], 4) == 0
