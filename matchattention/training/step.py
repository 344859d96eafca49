"""One training step: eager anywhere, compiled and captured in CUDA graphs on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from matchattention.data.batch import Batch
from matchattention.errors import first_line
from matchattention.training.compilation import compile_blocks, undo_compilation
from matchattention.training.distillation import Distillation
from matchattention.training.distributed import Replicas
from matchattention.training.losses import LossConfig, total_loss
from matchattention.training.optimizer import Updater
from matchattention.training.validity import silence_bad_samples

logger = logging.getLogger(__name__)

# "capture" is a CUDA graph of plain kernels: no minutes of compiling, most of the speed.
Mode = Literal["eager", "compile", "capture", "graph"]
WARM_UPS = 3


class TrainingStep:
    """Forward, loss, backward and update of one batch, with running means of the loss terms.

    `prepare` brings the step into the fastest mode the machine allows and says in ``mode`` which one that
    is; whatever fails on the way is logged and the next slower mode is taken, because a training that
    runs slowly is worth more than one that does not run.

    Attributes:
        mode: How the step runs now.
        names: The loss terms, in the order of ``totals``.
        totals: Device tensor of sums since the last `read_totals`: each term, silenced samples, steps.
    """

    def __init__(
        self,
        model: nn.Module,
        updater: Updater,
        loss: LossConfig,
        *,
        mixed_precision: bool,
        replicas: Replicas | None = None,
        accumulate: int = 1,
        distillation: Distillation | None = None,
        objective: Callable[..., dict[str, Tensor]] = total_loss,
    ) -> None:
        self.model = model
        self.updater = updater
        self.loss = loss
        self.objective = self._plain_objective = objective
        self.mixed_precision = mixed_precision
        self.replicas = replicas or Replicas()
        self.accumulate = accumulate
        self.distillation = distillation
        self.device = updater.rate.device
        self.mode: Mode = "eager"
        self.names = ["loss", "final", "initial", "self", "cross", "consistency", "visible"]
        self.names += [] if distillation is None else ["distillation"]
        self.totals = torch.zeros(len(self.names) + 2, device=self.device)
        self._compiled = False
        self._buffers: Batch | None = None
        self._backward_graph: torch.cuda.CUDAGraph | None = None
        self._update_graph: torch.cuda.CUDAGraph | None = None
        # Leaf gradients remember the stream they were first accumulated on. Warm-up, capture and eager
        # steps share one stream, so that a capture never has to wait for another one.
        self.stream = torch.cuda.Stream() if self.device.type == "cuda" else None
        self.consumed: torch.cuda.Event | None = None
        self.finished: torch.cuda.Event | None = None

    def _backward(self, batch: Batch) -> None:
        """Add one micro-batch's share of the gradients, and its loss terms to the totals."""
        cleaned, silenced = silence_bad_samples(batch)
        teacher_field = None
        if self.distillation is not None:
            cleaned, teacher_field, dropped = self.distillation(cleaned, self.mixed_precision)
            silenced = silenced + dropped
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision, cache_enabled=False):
            matches = self.model(cleaned.image0, cleaned.image1)
        with torch.autocast(self.device.type, enabled=False):
            terms = self.objective(matches, cleaned, self.loss)
            if self.distillation is not None and teacher_field is not None:
                distilled = self.distillation.term(matches, teacher_field, cleaned)
                terms["loss"] = terms["loss"] + self.distillation.config.weight * distilled
                terms["distillation"] = distilled
        loss = terms["loss"] if self.accumulate == 1 else terms["loss"] / self.accumulate
        loss.backward()
        values = [terms[name].detach().float() for name in self.names]
        self.totals.add_(torch.stack([*values, silenced.float(), torch.ones_like(values[0])]))

    def _clear(self) -> None:
        self.updater.clear_gradients()

    def _average(self) -> None:
        """In one call; what is sharded has been averaged on the way back."""
        self.replicas.average_gradients(self.updater.replicated)

    def gradients(self, batch: Batch) -> None:
        """Leave one batch's gradients, averaged over the replicas, in the parameters (eager or compiled)."""
        self._clear()
        self._backward(batch)
        self._average()

    def __call__(
        self, batch: Batch, learning_rate: float, average_steps: int, *, first: bool = True, last: bool = True
    ) -> None:
        """Train on one micro-batch; returns before a GPU is done.

        Args:
            batch: On the model's device.
            learning_rate: Of this step.
            average_steps: Steps the weight average has seen.
            first: Whether a new step begins with it.
            last: Whether the weights are updated after it.

        On a GPU the batch must be ready on the stream that is current when this is called. Its memory may
        be reused after the event ``consumed``; the step is done after ``finished``.
        """
        if self.stream is None:
            self._run(batch, learning_rate, average_steps, first, last)
            return
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self._run(batch, learning_rate, average_steps, first, last)
            self.finished = self.stream.record_event()

    def _run(self, batch: Batch, learning_rate: float, average_steps: int, first: bool, last: bool) -> None:
        captured = self._backward_graph is not None and self._update_graph is not None
        if captured:
            assert self.stream is not None
            self._fill(batch)
            self.consumed = self.stream.record_event()
            if first and self.accumulate > 1:  # a graph of one micro-batch overwrites, of several it adds
                torch._foreach_zero_([p.grad for p in self.updater.parameters if p.grad is not None])
            self._backward_graph.replay()  # type: ignore[union-attr]
        else:
            if first:
                self._clear()
            self._backward(batch)
            if self.stream is not None:
                self.consumed = self.stream.record_event()
        if not last:
            return
        self.updater.set_rates(learning_rate, average_steps)
        self._average()
        if captured:
            self._update_graph.replay()  # type: ignore[union-attr]
        else:
            self.updater.update()

    def _fill(self, batch: Batch) -> None:
        assert self._buffers is not None
        for buffer, value in zip(self._buffers, batch):
            if buffer is not None and value is not None:
                buffer.copy_(value, non_blocking=True)

    def prepare(self, example: Batch, fastest: Mode = "graph") -> Mode:
        """Get ready for batches shaped like ``example``, in the fastest mode up to ``fastest`` that works.

        Changes no weights. Call it again when the shape changes.
        """
        self._backward_graph = self._update_graph = self._buffers = None
        self._clear()
        self.mode = "eager"
        if self.stream is None:
            return self.mode
        kept = self.totals.clone()
        if fastest in ("compile", "graph"):
            self.mode = self._compile(example)
        if fastest in ("capture", "graph") and not self.updater.sharded:  # gathering weights cannot be captured
            self.mode = self._capture(example)
        if self._backward_graph is None:
            self._clear()
        self.totals.copy_(kept)
        torch.cuda.synchronize()
        return self.mode

    def _warm_up(self, example: Batch, times: int) -> None:
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(times):
                self.gradients(example)
        self.stream.synchronize()

    def _compile(self, example: Batch) -> Mode:
        try:
            if not self._compiled:
                compile_blocks(self.model)
                self._compiled = True
            self._warm_up(example, 1)
        except Exception as error:
            logger.warning("compiling failed, going on without: %s", first_line(error))
            undo_compilation(self.model)
            self._compiled = False
            self._clear()
            torch.cuda.synchronize()
            return "eager"
        try:
            self.objective = torch.compile(self._plain_objective, fullgraph=True, dynamic=False)
            self._warm_up(example, 1)
        except Exception as error:
            logger.warning("the loss could not be compiled, going on without: %s", first_line(error))
            self.objective = self._plain_objective
            self._clear()
            torch.cuda.synchronize()
        return "compile"

    def _capture(self, example: Batch) -> Mode:
        slower = self.mode
        try:
            self._buffers = Batch(*(None if value is None else value.clone() for value in example))  # type: ignore[arg-type]
            self._warm_up(self._buffers, WARM_UPS)
            with torch.cuda.stream(self.stream):
                self.updater.rehearse()
            self._clear()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            if self.accumulate > 1:
                for parameter in self.updater.parameters:
                    parameter.grad = torch.zeros_like(parameter)
            backward, update = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            # Other threads (file loaders, loggers) may use the GPU meanwhile.
            with torch.cuda.graph(backward, stream=self.stream, capture_error_mode="thread_local"):
                self._backward(self._buffers)
            with torch.cuda.graph(update, pool=backward.pool(), stream=self.stream, capture_error_mode="thread_local"):
                self.updater.update()
            torch.cuda.synchronize()
            # The parameters keep the captured gradients: the update graph reads them where they are.
            self._backward_graph, self._update_graph = backward, update
            return "graph" if slower == "compile" else "capture"
        except Exception as error:
            logger.warning("capturing a CUDA graph failed, going on without: %s", first_line(error))
            self._buffers = None
            self._clear()
            torch.cuda.synchronize()
            return slower

    def read_totals(self) -> dict[str, float]:
        """Mean of each loss term and the number of silenced samples since the last call; waits."""
        if self.finished is not None:  # reading is on another stream than the steps
            self.finished.synchronize()
        *terms, silenced, steps = self.totals.tolist()
        self.totals.zero_()
        means = {name: value / max(steps, 1) for name, value in zip(self.names, terms)}
        return {**means, "silenced": silenced}
