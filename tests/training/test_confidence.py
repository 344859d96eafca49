"""Training a confidence head: it learns which matches are wrong, and its file belongs to one network."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from matchattention.cli.main import main
from matchattention.errors import InputError
from matchattention.evaluation.held_out import judge_head
from matchattention.layers.confidence_head import Evidence
from matchattention.models import checkpoint
from matchattention.models.confidence_file import fingerprint, load_head, read_head_header, shipped_head
from matchattention.models.config import NetworkConfig
from matchattention.models.registry import create_model
from matchattention.training.confidence import ConfidenceTraining, Example, learning_rate, loss_of, train

TINY = NetworkConfig(channels=(16, 16, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


def _example(seed: int) -> Example:
    """Errors that one feature tells: Laplacians of 0.1 px where it is low, of 3 px where it is high."""
    generator = torch.Generator().manual_seed(seed)
    blurry = (torch.rand(2, 8, 16, generator=generator) < 0.3).float()
    features = torch.randn(2, 8, 16, 4, generator=generator)
    features[..., 0] = 5 * blurry
    scale = torch.where(blurry > 0, 3.0, 0.1).repeat_interleave(4, 1).repeat_interleave(4, 2)
    error = -scale * torch.rand(2, 32, 64, generator=generator).clamp(min=1e-6).log()
    zeros = torch.zeros(2, 8, 16, 2)
    evidence = Evidence(features, zeros, zeros, torch.zeros(2, 32, 64, 2), torch.ones(2, 32, 64))
    return Example(evidence, error, torch.ones(2, 32, 64, dtype=torch.bool))


def test_head_learns_the_scale_of_the_errors() -> None:
    plan = ConfidenceTraining(pairs=8, batch=2, epochs=60, rate=1e-2)
    head = train([_example(seed) for seed in range(4)], plan, torch.device("cpu"), lambda line: None)
    figures = judge_head(head, [_example(9)], plan)
    assert figures["ause_agreement"] == pytest.approx(1, abs=0.1)  # the views agree everywhere: no help
    assert figures["ause"] < 0.45
    assert figures["ece"] < 0.06
    assert figures["coverage"]["1"] == pytest.approx(68.3, abs=5)
    unseen = [_example(9), _example(10)]
    losses = [loss_of(head(example.evidence), example, plan.cap).item() for example in unseen]
    assert judge_head(head, unseen, plan)["nll"] == pytest.approx(sum(losses) / 2)


def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero() -> None:
    assert learning_rate(2.0, 0, 10**6) == pytest.approx(2.0 / 50)
    assert learning_rate(2.0, 49, 10**6) == pytest.approx(2.0)
    assert learning_rate(2.0, 5 * 10**5, 10**6) == pytest.approx(1.0)
    assert learning_rate(2.0, 10**6, 10**6) == pytest.approx(0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny network's checkpoint and a head that the command made for it."""
    folder = tmp_path_factory.mktemp("confidence")
    torch.manual_seed(0)
    checkpoint.save(create_model(TINY), folder / "tiny.safetensors", TINY)
    command = [
        "train-confidence",
        "--model",
        str(folder / "tiny.safetensors"),
        "--output",
        str(folder / "head.safetensors"),
    ]
    options = [
        "--source",
        "cards",
        "--pairs",
        "4",
        "--batch",
        "2",
        "--epochs",
        "1",
        "--size",
        "64x128",
        "--device",
        "cpu",
    ]
    assert main([*command, *options, "--cache", str(folder / "examples")]) == 0
    assert len(list((folder / "examples").rglob("example-*.safetensors"))) == 2
    return folder / "tiny.safetensors", folder / "head.safetensors"


def test_file_is_small_and_names_its_network(trained: tuple[Path, Path]) -> None:
    model, path = trained
    assert path.stat().st_size < 500_000
    owner, _, card = read_head_header(path)
    assert owner == fingerprint(checkpoint.load(model))
    assert card["model"] == "tiny.safetensors"
    assert len(card["model_file_sha256"]) == 64
    assert "coverage" in card["held_out_rendered"]


def test_head_of_other_weights_is_refused(trained: tuple[Path, Path]) -> None:
    model, path = trained
    network = checkpoint.load(model)
    assert load_head(path, network).shape["channels"] == 16
    with torch.no_grad():
        next(network.parameters()).add_(0.1)
    with pytest.raises(InputError, match="belongs to other weights"):
        load_head(path, network)
    assert shipped_head(network) is None


def test_checkpoint_is_no_head(trained: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="no confidence head"):
        load_head(trained[0])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--size", "100x100"], "multiples of 32"),
        (["--pairs", "1"], "at least two batches"),
        (["--source", "nonsense"], "Unknown source"),
    ],
)
def test_bad_options_are_sentences(
    options: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train-confidence", "--output", str(tmp_path / "head.safetensors"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
