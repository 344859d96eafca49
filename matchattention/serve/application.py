"""The addresses of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from matchattention import __version__
from matchattention.errors import InputError
from matchattention.geometry.pair_check import judge_pair, require_visible
from matchattention.inference.prediction import Prediction
from matchattention.serve import pictures, protocol
from matchattention.serve.batching import Batcher, Matcher, Pair
from matchattention.serve.gate import Gate
from matchattention.serve.metrics import CONTENT_TYPE, Metrics
from matchattention.serve.settings import Settings

T = TypeVar("T")
_MOST_FIELDS = 16


def make_application(
    match: Matcher, name: str, task: str, settings: Settings, *, token: str | None = None, local: bool = True
) -> FastAPI:
    """An ASGI application that serves one network.

    Args:
        match: predictions of pairs of one size.
        name: the model's, in its addresses.
        task: "stereo" or "flow"; only stereo has `/depth`.
        settings: the limits.
        token: that requests must carry; None: nobody needs one.
        local: whether only requests addressed to this machine by name are answered: without that, a foreign page
            could point its own name at 127.0.0.1 and read along (DNS rebinding).
    """
    metrics = Metrics(lambda: len(batcher))
    batcher = Batcher(
        match,
        largest_batch=settings.largest_batch,
        wait_s=settings.batch_wait_ms / 1000,
        largest_batch_pixels=settings.pixels,
        observe=metrics.observe_batch,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(batcher.close)  # every request has its answer by now

    app = FastAPI(title="MatchAttention", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, settings=settings, metrics=metrics, token=token, local=local)
    _add_error_answers(app)
    _add_information(app, name, task, batcher, metrics)
    _add_inference(app, name, task, batcher, settings)
    if task == "stereo":
        _add_depth(app, batcher, settings)
    else:
        _refuse_depth(app, name)
    return app


def _add_error_answers(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    async def wrong_input(_: Request, error: InputError) -> Response:
        # In ASCII: a sentence may quote half a surrogate pair, which UTF-8 cannot hold.
        return Response(json.dumps({"error": str(error)}), 400, media_type="application/json")

    @app.exception_handler(HTTPException)
    async def no_such_address(_: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)


def _add_information(app: FastAPI, name: str, task: str, batcher: Batcher, metrics: Metrics) -> None:
    @app.get("/v2")
    async def server() -> dict[str, Any]:
        return {"name": "matchattention", "version": __version__, "extensions": ["binary_tensor_data"]}

    @app.get("/v2/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    async def ready() -> Response:
        return JSONResponse({"ready": batcher.alive}, 200 if batcher.alive else 503)

    async def model() -> dict[str, Any]:
        return protocol.metadata(name, task)

    app.get("/v2/health/ready")(ready)
    for address in _model_addresses(name):
        app.get(address)(model)
        app.get(f"{address}/ready")(ready)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def counters() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _add_inference(app: FastAPI, name: str, task: str, batcher: Batcher, settings: Settings) -> None:
    async def infer(request: Request) -> Response:
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "Compressed requests are not taken: send the tensors as they are.")
        body = await request.body()
        length = request.headers.get(protocol.HEADER)
        asked = await _in_thread(protocol.read_request, body, length, task, settings)
        del body
        for pair in asked.pairs:
            await _in_thread(_require_visible, pair, task)
        predictions = await _matched(batcher, asked.pairs)
        content, headers = await _in_thread(protocol.write_answer, predictions, asked, name)
        return Response(content, headers=headers)

    for address in _model_addresses(name):
        app.post(
            f"{address}/infer",
            response_class=Response,
            openapi_extra=_body("application/json", protocol.request_schema(task)),
            responses=_answers("application/json", "application/octet-stream"),
        )(infer)


def _add_depth(app: FastAPI, batcher: Batcher, settings: Settings) -> None:
    @app.post(
        "/depth",
        response_class=Response,
        openapi_extra=_body("multipart/form-data", pictures.FORM),
        responses=_answers(*pictures.FORMATS.values()),
    )
    async def depth(request: Request) -> Response:
        async with request.form(max_files=2, max_fields=_MOST_FIELDS, max_part_size=4096) as form:
            files = {key: value for key, value in form.items() if isinstance(value, UploadFile)}
            if set(files) != {"left", "right"}:
                raise InputError("Send two image files as the form's 'left' and 'right' (multipart/form-data).")
            wanted = pictures.read_wanted({key: str(value) for key, value in form.items() if key not in files})
            contents = [await files[view].read() for view in ("left", "right")]
        pair = await _in_thread(pictures.read_views, *contents, settings)
        del contents
        await _in_thread(_require_visible if not wanted.check else _require_rectified, pair, "stereo")
        (prediction,) = await _matched(batcher, [pair])
        content, headers = await _in_thread(pictures.write_depth, prediction, wanted)
        return Response(content, headers=headers)


def _refuse_depth(app: FastAPI, name: str) -> None:
    @app.post("/depth", include_in_schema=False)
    async def depth() -> Response:
        raise HTTPException(404, f"/depth is for stereo models; {name} finds flow: use /v2/models/{name}/infer.")


def _body(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A request's body for `/openapi.json`: it is read by hand, so that FastAPI cannot know it."""
    return {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "object", **schema}}}}}


def _answers(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Answers for `/openapi.json`: the result, and the one sentence of every refusal."""
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    refusal = {"description": "A sentence that says why not.", "content": {"application/json": {"schema": error}}}
    return {
        200: {"description": "The result.", "content": {kind: {} for kind in kinds}},
        **{status: refusal for status in (400, 401, 408, 413, 415, 500, 503, 504)},
    }


async def _matched(batcher: Batcher, pairs: Sequence[Pair]) -> list[Prediction]:
    """Wait for the network; who stops waiting takes the pairs out of the queue again."""
    futures = batcher.submit(pairs)
    try:
        return list(await asyncio.gather(*(asyncio.wrap_future(future) for future in futures)))
    finally:
        for future in futures:
            future.cancel()


def _require_visible(pair: Pair, task: str) -> None:
    for image, name in zip(pair, protocol.INPUTS[task]):
        require_visible(image, name)


def _require_rectified(pair: Pair, _: str) -> None:
    judge_pair(*pair)


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Away from the event loop, which has other clients."""
    return await asyncio.get_running_loop().run_in_executor(None, partial(work, *arguments))


def _model_addresses(name: str) -> tuple[str, str]:
    return f"/v2/models/{name}", f"/v2/models/{name}/versions/{protocol.VERSION}"
