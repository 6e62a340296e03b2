import signal
import subprocess
import sys
from pathlib import Path

from fedavg_app.ray_engine.owned_folder import OwnedFolder, delete_abandoned

PROGRAM = """
import sys, time
from fedavg_app.ray_engine.owned_folder import OwnedFolder

folder = OwnedFolder("run-", sys.argv[1])
print(folder.name, flush=True)
time.sleep(600)
"""


def test_folder_of_a_killed_process_is_deleted_by_the_next_and_a_living_ones_is_not(tmp_path):
    processes = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, tmp_path], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        dead, living = (Path(process.stdout.readline().decode().strip()) for process in processes)
        (dead / "states").mkdir()
        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(30)
        assert dead.is_dir()
        ours = OwnedFolder("run-", str(tmp_path))
        assert not dead.exists()
        assert living.is_dir()
        assert Path(ours.name).is_dir()
        ours.cleanup()
        assert list(tmp_path.iterdir()) == [living]
    finally:
        for process in processes:
            process.kill()
            process.wait(30)
            process.stdout.close()


def test_folders_that_are_not_ours_are_left_alone(tmp_path):
    (tmp_path / "run-without-a-lock").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "owner.lock").touch()
    delete_abandoned(tmp_path, "run-")
    assert {path.name for path in tmp_path.iterdir()} == {"run-without-a-lock", "other"}
