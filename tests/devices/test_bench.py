"""The benchmark that users run on their machines."""

import pytest
import torch

from anygatr import bench

TINY = [
    "--device",
    "cpu",
    "--batch",
    "2",
    "--tokens",
    "3",
    "--blocks",
    "1",
    "--mv",
    "2",
    "--s",
    "4",
    "--heads",
    "2",
    "--steps",
    "1",
]


def test_the_table_has_a_row_for_each_network(capsys):
    bench.main([*TINY, "--geometries", "E", "--no-compile"])
    said = capsys.readouterr().out
    rows = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| ")]
    assert rows[:4] == ["network", "E, torch", "E, c", "Transformer"]
    assert "failed" not in said
    assert "as an issue of the project's repository" in said


def test_a_network_that_fails_costs_one_row(capsys, monkeypatch):
    monkeypatch.setattr(bench, "_transformer", lambda size, device: (torch.nn.Linear(3, 3), (torch.randn(2),)))
    bench.main([*TINY, "--geometries", "E", "--no-compile"])
    said = capsys.readouterr().out
    assert "| Transformer            | failed: " in said
    assert "| lgatr" in said


def test_times_are_medians_of_calls():
    class Counted(torch.nn.Module):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return x.requires_grad_() * 2

    net = Counted()
    row = bench.measure(bench.Contestant("counted", net, (torch.randn(3),)), torch.device("cpu"), None, 5)
    assert net.calls == 2 * (2 + 5)
    assert row.memory is None
    assert row.step > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--precision", "int8"], "argument --precision: invalid choice: 'int8'"),
        (["--device", "cuda:7"], "argument --device: 'cuda:7' cannot be used here: "),
        (["--device", "toaster"], "argument --device: 'toaster' cannot be used here: "),
        (["--geometries", "E", "Z"], "argument --geometries: "),
        (["--tokens", "0"], "argument --tokens: '0' must be a positive integer"),
    ],
)
def test_wrong_arguments_are_named(arguments, said, capsys):
    with pytest.raises(SystemExit):
        bench.main(arguments)
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown
