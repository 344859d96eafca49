"""An archive through Ray Data: groups of pairs to workers, shards of results, progress, resume, a summary."""

from __future__ import annotations

import csv
import io
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from matchattention.archive.manifest import Entry, fingerprint
from matchattention.archive.results import BAD_PAIRS, SUMMARY, Store, begin, read_rows, shard_name
from matchattention.archive.worker import ShardPredictor
from matchattention.errors import InputError


@dataclass(frozen=True)
class ArchiveOptions:
    """How an archive is predicted.

    Attributes:
        output: Folder or address of the results.
        model: Name or file of the network.
        weights: Hash of its weights: another file of the same name must not continue the results.
        task: "stereo" or "flow".
        device: "auto", "cpu" or "cuda".
        precision: Of the network.
        kind: "png16" or "pfm".
        pairs_per_shard: Pairs whose results share a file: what a killed worker loses.
        batch: Pairs of one size in one pass.
        workers: Processes; None for one a GPU, or one a CPU core where there is none.
        check: Whether pairs are looked at for swapped or unrectified views.
        address: Of a running Ray cluster; None for this machine alone.
        overwrite: Compute again what is there.
    """

    output: str
    model: str
    weights: str
    task: str = "stereo"
    device: str = "auto"
    precision: str = "auto"
    kind: str = "png16"
    pairs_per_shard: int = 256
    batch: int = 8
    workers: int | None = None
    check: bool = True
    address: str | None = None
    overwrite: bool = False

    def deciding(self) -> dict[str, Any]:
        """What decides the results, and with them whether a run may be continued."""
        names = ("weights", "task", "precision", "kind", "pairs_per_shard", "check")
        return {name: getattr(self, name) for name in names}


def predict_archive(
    entries: list[Entry], options: ArchiveOptions, progress: Callable[[int, int], None] = lambda pairs, bad: None
) -> dict[str, Any]:
    """Predict every pair once; returns the summary that is also written as ``summary.json``.

    Args:
        entries: All pairs.
        options: How.
        progress: Takes the pairs and the bad pairs of each shard that is done.

    Raises:
        InputError: Ray is not installed, or the output belongs to other pairs or options.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--engine ray needs Ray: pip install 'matchattention[ray]'") from None
    if options.pairs_per_shard < 1 or options.batch < 1:
        raise InputError("A shard and a batch hold at least one pair each")
    store = Store(options.output)
    settings = {"fingerprint": fingerprint(entries, options.deciding()), **asdict(options), "pairs": len(entries)}
    begin(store, settings, options.overwrite)
    groups = [entries[i : i + options.pairs_per_shard] for i in range(0, len(entries), options.pairs_per_shard)]
    there = store.names()
    missing = [number for number in range(len(groups)) if shard_name(number) not in there]
    skipped = len(entries) - sum(len(groups[number]) for number in missing)
    began = time.monotonic()
    if missing:
        started = not ray.is_initialized()
        _start(ray, options)
        try:
            _run(ray, groups, missing, options, progress)
        finally:
            if started:
                ray.shutdown()
    return _summarise(store, groups, entries, skipped, time.monotonic() - began)


def _start(ray: Any, options: ArchiveOptions) -> None:
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    if options.address is not None:
        quiet = {"address": options.address, "log_to_driver": False, "logging_level": "ERROR"}
    elif options.workers is not None:
        quiet["num_cpus"] = options.workers + 1  # one for Ray Data's own tasks
    ray.init(**quiet)


def _run(
    ray: Any,
    groups: list[list[Entry]],
    missing: list[int],
    options: ArchiveOptions,
    progress: Callable[[int, int], None],
) -> None:
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.ERROR)  # its plan of execution is not the user's
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    resources = ray.cluster_resources()
    on_gpu = options.device.startswith("cuda") or (options.device == "auto" and resources.get("GPU", 0) >= 1)
    workers = options.workers or int(resources["GPU"] if on_gpu else max(resources.get("CPU", 2) - 1, 1))
    work = [{"shard": number, "entries": json.dumps([asdict(entry) for entry in groups[number]])} for number in missing]
    # One block a shard: a worker that dies costs its shard, which another one makes again.
    dataset = ray.data.from_items(work, override_num_blocks=len(work)).map_batches(
        ShardPredictor,
        fn_constructor_kwargs={
            "output": options.output,
            "model": options.model,
            "task": options.task,
            "device": "cuda" if on_gpu else "cpu",
            "precision": options.precision,
            "kind": options.kind,
            "batch": options.batch,
            "check": options.check,
        },
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, len(work))),
        num_cpus=1,
        num_gpus=1 if on_gpu else 0,
    )
    try:
        for row in dataset.iter_rows():
            progress(int(row["pairs"]), int(row["bad"]))
    except InputError as error:  # a worker's own, with its stack in the text
        raise InputError(f"A worker could not start: {getattr(error, 'cause', error)}") from None


def _summarise(
    store: Store, groups: list[list[Entry]], entries: list[Entry], skipped: int, seconds: float
) -> dict[str, Any]:
    rows = read_rows(store, range(len(groups)), ["name", "left", "right", "error", "mean_confidence"])
    if len(rows) != len(entries):
        raise InputError(f"{len(entries) - len(rows)} pairs have no result yet: run the same command again")
    bad = [row for row in rows if row["error"] is not None]
    good = [row["mean_confidence"] for row in rows if row["error"] is None]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["name", "left", "right", "error"])
    writer.writerows([row["name"], row["left"], row["right"], row["error"]] for row in bad)
    store.write(BAD_PAIRS, text.getvalue().encode())
    summary = {
        "pairs": len(rows),
        "predicted": len(good),
        "bad": len(bad),
        "already_there": skipped,
        "shards": len(groups),
        "seconds": round(seconds, 2),
        "pairs_per_second": round((len(rows) - skipped) / seconds, 3) if seconds and len(rows) > skipped else None,
        "mean_confidence": round(sum(good) / len(good), 4) if good else None,
    }
    store.write(SUMMARY, (json.dumps(summary, indent=1) + "\n").encode())
    return summary
