"""A folder of results with one experiment of two rows and two columns, for tests of the report."""

from paper.experiments import load
from paper.records import by_run, read_all, read_run, write
from paper.tables import fill
from tests.support import fake_runs
from tests.support.fake_runs import line

TABLE = """
title = "Made up & shown"
source = "nobody 1999, table 1"
measure = "{measure}"
speedup = true
run = {{ task = "mnist-logistic", target = 0.9, fraction-train = 0.1 }}
columns = [{{ name = "IID" }}, {{ name = "shards", run = {{ partition = "shards" }} }}]

[[rows]]
name = "slow"
run = {{ local-epochs = 1 }}
paper = [100, "not reached"]

[[rows]]
name = "fast"
run = {{ local-epochs = 5, learning-rate = [0.1, 0.2], seed = [1, 2, 3] }}
paper = [20, ""]
others = [25, ""]
"""


class MadeUpResults:
    """A folder of results and one experiment, "made-up", to which records are added."""

    def __init__(self, folder, measure="rounds-to-target"):
        self.folder = folder
        (folder / "experiments").mkdir(parents=True)
        self.path = folder / "experiments" / "made-up.toml"
        self.path.write_text(TABLE.format(measure=measure))
        self.experiment = load(self.path)
        self.records = folder / "records" / "made-up"
        self.records.mkdir(parents=True)

    def edit(self, old, new):
        text = self.path.read_text()
        assert old in text
        self.path.write_text(text.replace(old, new))
        self.experiment = load(self.path)

    def add(self, row, column, curve, seed=1, rate="auto", **summary):
        """Record one run with these accuracies by round."""
        (run,) = (
            run
            for run in self.experiment.cells()[row][column].runs
            if (run.config.seed, run.config.learning_rate) == (seed, rate)
        )
        lines = [line(number, accuracy) for number, accuracy in curve.items()]
        folder = self.folder / "runs" / f"{column}-{run.slug}"
        fake_runs.write(folder, run.config, lines, **summary)
        write(read_run(folder), self.records / f"{run.slug}.json")

    def table(self):
        return fill(self.experiment, by_run(read_all(self.records)))
