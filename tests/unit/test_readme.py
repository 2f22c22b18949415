"""The README says what is true of the checkout beside it."""

from __future__ import annotations

from tfimg.matrix.schema import Matrix, Row
from tfimg.workspace import Workspace


def line(row: Row) -> str:
    """What the README's table says of a row."""
    releases = ", ".join(release.version for release in row.tensorflow)
    assert row.gpu
    cudnn = row.gpu.cudnn.replace(">=", "≥").replace(",", ", ")
    paired = [release for release in row.tensorflow if release.libtpu]
    libtpu = ", ".join(
        f"{release.libtpu} ({release.version})" if len(row.tensorflow) > 1 else str(release.libtpu)
        for release in paired
    )
    pythons = f"{row.pythons[0]} – {row.pythons[-1]}"  # noqa: RUF001
    return f"| {releases} | {pythons} | {row.gpu.cuda} | {cudnn} | {libtpu or '–'} |"  # noqa: RUF001


def test_its_table_of_releases_is_the_matrix_s(matrix: Matrix, workspace: Workspace) -> None:
    text = (workspace.root / "README.md").read_text()
    head = "| TensorFlow | Python | CUDA (facts only) | cuDNN (facts only) | libtpu (facts only) |\n"
    table = "".join(f"{line(row)}\n" for row in matrix.rows)
    assert f"{head}|---|---|---|---|---|\n{table}\n" in text


def test_ci_runs_the_line_that_tests(workspace: Workspace) -> None:
    text = (workspace.root / "README.md").read_text()
    *_, last = (workspace.root / ".ci/run").read_text().strip().splitlines()
    assert f"```sh\n{last}\n```" in text
