import pytest

from fedavg_app.errors import ConfigError
from paper.figures import FIGURES, Figure, read_figures

FIGURE = Figure(
    title="A figure", source="nobody, figure 1", command="python -m something",
    found=["the mean is 0.4"], data={"theta": [0.0, 1.0]},
)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    path = tmp_path / FIGURES / "one.json"
    path.parent.mkdir()
    FIGURE.write(path)
    path.with_suffix(".png").write_bytes(b"")
    return path


def test_written_figure_is_read_back(path, tmp_path):
    assert read_figures(tmp_path) == {path: FIGURE}


def test_figure_without_picture_is_rejected(path, tmp_path):
    path.with_suffix(".png").unlink()
    with pytest.raises(ConfigError) as caught:
        read_figures(tmp_path)
    assert str(caught.value) == f"figure = '{path}': there is no one.png; make it again"


def test_damaged_figure_is_rejected(path, tmp_path):
    path.write_text("{")
    with pytest.raises(ConfigError) as caught:
        read_figures(tmp_path)
    assert f"figure = '{path}': is not a figure" in str(caught.value)
    assert "\n" not in str(caught.value)
