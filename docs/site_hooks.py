"""Hooks of mkdocs: pages name pictures by their place in the repository; the site has copies."""

import shutil
from pathlib import Path
from typing import Any

PLOTS = Path(__file__).parent.parent / "results" / "plots"


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with its pictures' places in the site."""
    return html.replace('src="../results/plots/', 'src="plots/')


def on_post_build(config: Any, **_: Any) -> None:
    """Copy the pictures into the site."""
    shutil.copytree(PLOTS, Path(config["site_dir"]) / "plots", dirs_exist_ok=True)
