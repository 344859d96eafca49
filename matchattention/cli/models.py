"""`matchattention models`: what can be created, what is trained."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parameters", action="store_true", help="count each network's parameters")


def run(arguments: argparse.Namespace) -> None:
    import torch

    from matchattention.models.checkpoint import shipped
    from matchattention.models.registry import create_model, list_models

    trained = shipped()
    networks = list_models()
    ready = {name: summary for name, summary in networks.items() if name in trained}
    rest = {name: summary for name, summary in networks.items() if name not in trained}
    for heading, group in (
        ("with trained weights (matchattention.load, --model):", ready),
        ("without weights here (matchattention.create_model, train, or a checkpoint of your own):", rest),
    ):
        print(heading)
        for name, summary in group.items():
            count = ""
            if arguments.parameters:
                with torch.device("meta"):
                    count = f"{sum(p.numel() for p in create_model(name).parameters()) / 1e6:8.2f} M  "
            print(f"  {name:18}{count}{summary}")
