"""The shapes in the signatures are true: the eager tests once more, with every annotation checked at run time."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKED = "anygatr.algebra,anygatr.equivariance.symmetry,anygatr.equivariance.solver"
HERE = Path(__file__).parent


def run_checked(*arguments: str) -> subprocess.CompletedProcess[str]:
    hook = f"--jaxtyping-packages={CHECKED},beartype.beartype"
    # one pass over the shapes is enough: the randomised axioms would only repeat them
    chosen = ["-m", "not slow and not hypothesis", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", *chosen, hook, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=HERE.parent)


def test_annotations_hold():
    done = run_checked(str(HERE / "test_algebra.py"), str(HERE / "test_symmetry.py"))
    assert done.returncode == 0, done.stdout[-4000:]


def test_a_wrong_shape_is_noticed(tmp_path):
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(
        "import torch\nfrom anygatr import Algebra\n\n\ndef test_wrong():\n"
        "    alg = Algebra(2)\n    alg.format(torch.zeros(2, 3, 4))\n"
    )
    done = run_checked(str(wrong))
    assert done.returncode == 1
    assert "TypeCheckError" in done.stdout
