"""The command `plan`, with runs that take no time."""

import json

import pytest

from fedavg_app.cli.plan import _planned
from fedavg_app.config import RunConfig
from fedavg_app.sweep import run_all, run_process
from fedavg_app.sweep.rungs import CANDIDATES as DEFAULT
from tests.support.fake_runs import EndedProcess, files, line

# By the number of local steps: the accuracy of every round. 1 begins slowly, and 2 diverges.
ACCURACY = {
    1: lambda number: 0.3 if number < 15 else 0.9,
    2: lambda number: 0.99,
    3: lambda number: 0.8,
    4: lambda number: 0.7 + number / 1000,
    5: lambda number: 0.6,
    6: lambda number: 0.5,
}
CANDIDATES = 'strategy = "fedavg"\nlocal-steps = [1, 2, 3, 4, 5, 6]\n'
WORDS = ("plan", "mnist-logistic", "--num-clients", "10", "--budget", "900 MB up")


class Runs:
    """A `Launch`; every round takes 10 MB up, and a run ends at its limits."""

    def __init__(self, only=99):
        self.started, self._only = [], only

    def __call__(self, config, folder, resumable):
        if len(self.started) == self._only:
            raise KeyboardInterrupt
        self.started.append((config.local_steps, config.budget, config.num_server_rounds))
        path = resumable or folder / "run"
        assert path.exists() == bool(resumable)
        path.mkdir(exist_ok=True)
        rounds = min(int(float(config.budget.split()[0]) // 10), config.num_server_rounds)
        lines = [line(0, 0.1)] + [
            line(number, ACCURACY[config.local_steps](number)) for number in range(1, rounds + 1)
        ]
        status = "diverged" if config.local_steps == 2 else "finished"
        left = files(config, lines, status=status, **{"final-accuracy": lines[-1]["accuracy"]})
        for name, content in {**left, "checkpoint": "a state"}.items():
            (path / name).write_text(content)
        (folder / "log").write_text("the last line\n")
        return EndedProcess(0)


@pytest.fixture
def plan(tmp_path, monkeypatch, command_line):
    """Return a function that runs the command and returns status, output, errors and runs."""
    monkeypatch.setattr(run_all, "POLL_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "mine.toml").write_text(CANDIDATES)

    def run(*words, runs=None, candidates=CANDIDATES):
        runs = runs or Runs()
        monkeypatch.setattr(run_process, "launcher", lambda *_: runs)
        (tmp_path / "mine.toml").write_text(candidates)
        options = ("--candidates", tmp_path / "mine.toml", "--run-dir", tmp_path / "runs")
        return *command_line(*WORDS, *options, *words), runs.started

    return run


def test_best_third_resumes_from_checkpoints_and_the_best_is_chosen(plan, tmp_path):
    status, shown, _, started = plan("--num-server-rounds", "200")
    assert status == 0
    # A ninth is 10 rounds of the 90 that the budget pays for; two of six stay in, then one.
    assert started == [
        *((steps, "100 MB up", 22) for steps in range(1, 7)),
        (3, "300 MB up", 66), (4, "300 MB up", 66), (3, "900 MB up", 200),
    ]  # fmt: skip
    rows = [row.split() for row in shown.splitlines() if row.endswith(tuple("123456"))]
    assert [(row[0], row[1], row[-1]) for row in rows[-6:]] == [
        ("1", "0.8000", "3"), ("1/3", "0.7300", "4"), ("1/9", "0.6000", "5"),
        ("1/9", "0.5000", "6"), ("1/9", "0.3000", "1"), ("1/9", "diverged", "2"),
    ]  # fmt: skip
    assert "take local-steps 3: accuracy 0.8000 within 900 MB up and 200 rounds" in shown
    assert (
        "the command: fedavg run --task mnist-logistic --seed 1 --local-steps 3 "
        "--target none --num-clients 10 --budget '900 MB up'\n" in shown
    )
    assert not list((tmp_path / "runs").glob("*/*/checkpoint"))


def test_repeated_plan_starts_no_run_and_gives_the_same_answer(plan):
    whole = plan("--num-server-rounds", "200")
    for _ in range(2):
        again = plan("--num-server-rounds", "200")
        assert again[3] == []
        assert again[1].partition("\nbest accuracy")[2] == whole[1].partition("\nbest accuracy")[2]


@pytest.mark.parametrize("before", [1, 7, 8])
def test_finished_runs_are_not_repeated(plan, before, tmp_path):
    status, shown, _, first = plan("--num-server-rounds", "200", runs=Runs(before))
    assert status == 130
    assert "the same command continues" in shown
    status, shown, _, second = plan("--num-server-rounds", "200")
    assert status == 0
    assert "take local-steps 3" in shown
    assert (len(first), len(first) + len(second)) == (before, 9)


def test_method_that_starts_slowly_is_not_dropped_in_its_first_ten_rounds(plan):
    _, shown, _, started = plan("--num-server-rounds", "18")
    assert [steps for steps, _, rounds in started if rounds == 18] == [1, 3, 4, 5, 6]
    assert "take local-steps 1: accuracy 0.9000" in shown


@pytest.mark.parametrize(
    ("words", "candidates", "problem"),
    [
        (["--budget", ""], CANDIDATES, "budget = '': give what a run may spend, as in --budget"),
        (["--budget", "3 MB"], CANDIDATES, "budget = '3 MB': give bytes"),
        (["--budget", "9 MB up"], CANDIDATES, "budget = '9 MB up': no method finished a round"),
        ([], 'strategy = "stc"\nlocal-steps = [1, -1]', "local-steps = -1: "),
        ([], "steps = 1", "steps = 1: unknown key"),
        ([], f"{CANDIDATES}seed = [1, 2]", "candidates = '"),
        ([], f"{CANDIDATES}target = 0.9", "candidates = '"),
    ],
)
def test_invalid_plan_is_refused_in_one_line(plan, words, candidates, problem):
    status, _, error, _ = plan(*words, candidates=candidates)
    assert (status, error.count("\n")) == (1, 1)
    assert error.startswith(f"error: {problem}")


def test_default_candidates_have_distinct_names():
    config = RunConfig(budget="1 MB up").model_dump(by_alias=True)
    planned = _planned({**config, "task": "mnist-logistic"}, None)
    assert {run.config.strategy for run in planned} == {keys["strategy"] for keys in DEFAULT}
    assert len({run.name for run in planned}) == len(planned)


def test_plan_chooses_by_validation_and_says_the_test_value(plan):
    """The method with the best test accuracy has the worst validation accuracy."""

    class Validated(Runs):
        def __call__(self, config, folder, resumable):
            ended = super().__call__(config, folder, resumable)
            path = (resumable or folder / "run") / "history.jsonl"
            lines = [json.loads(text) for text in path.read_text().splitlines()]
            for own in lines:
                own["validation_metrics"] = {"accuracy": 0.5 - own["accuracy"] / 10}
            path.write_text("".join(json.dumps(own) + "\n" for own in lines))
            return ended

    words = ("--num-server-rounds", "200", "--validation", "0.1")
    _, shown, _, started = plan(*words, runs=Validated())
    assert "best accuracy on validation examples within each method" in shown
    assert started[-1][0] == 1
    # Its first 14 rounds have 0.3 on the test set; round 0, which does not count, has 0.1.
    text = "take local-steps 1: accuracy 0.4700 on validation examples, 0.3000 on the test set,"
    assert text in shown
    assert "--validation 0.1" in shown
    # A task may have validation examples of its own, without the key.
    assert text in plan("--num-server-rounds", "200", "--seed", "9", runs=Validated())[1]
    _, shown, *_ = plan("--num-server-rounds", "200")
    assert "best accuracy on the test set within each method's share of the budget:" in shown
