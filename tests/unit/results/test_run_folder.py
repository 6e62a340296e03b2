from fedavg_app.config import RunConfig
from fedavg_app.results.run_folder import create_run_folder


def test_folder_of_a_task_with_any_name_lies_in_run_dir(tmp_path):
    folder = create_run_folder(RunConfig(run_dir=str(tmp_path)), "CIFAR-10 / small: ../images")
    assert list(tmp_path.iterdir()) == [folder]
    assert "-CIFAR-10-small-..-images-fedavg-" in folder.name
