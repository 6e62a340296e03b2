import pytest

from fedavg_app.callbacks.run_directory import RunDirectory
from fedavg_app.errors import ConfigError
from tests.support.training_runs import training_run


@pytest.mark.parametrize("resumed", [False, True])
def test_folder_that_cannot_be_written_is_named_by_the_key_that_gave_it(tmp_path, resumed):
    folder = tmp_path / "gone"
    run = training_run(folder, **({"resume": str(folder)} if resumed else {}))
    with pytest.raises(ConfigError) as caught:
        RunDirectory(run)
    key = "resume" if resumed else "run-dir"
    assert str(caught.value).startswith(f"{key} = {str(folder)!r}: cannot write there (No such")
