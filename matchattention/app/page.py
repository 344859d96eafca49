"""What people see: the pair, what is going on, and the result."""

from __future__ import annotations

import asyncio
import logging
import shutil
from functools import partial
from pathlib import Path

from nicegui import events, ui

from matchattention.app.components import DropZone
from matchattention.app.result import Result, compute
from matchattention.app.result_view import ResultView
from matchattention.app.routes import result_address, upload_address
from matchattention.app.session import CAMERA, PHOTOS, Sessions
from matchattention.app.uploads import CAMERA_SUFFIXES, Limits, open_photo
from matchattention.app.worker import Cancelled, Job, Worker
from matchattention.data.images import PHOTO_SUFFIXES
from matchattention.errors import InputError
from matchattention.examples import example, list_examples
from matchattention.geometry.camera import StereoCamera
from matchattention.inference.predictor import Predictor

logger = logging.getLogger(__name__)

_REFRESH_SECONDS = 0.15


class Page:
    """One open page and its session; what a flow network's page says and does differently is in `flow_page`.

    Args:
        predictor: of a stereo network, shared by all pages.
        model: its name, to show.
        sessions: where this page's session is entered.
        worker: computes for all pages.
        limits: of uploads, to show.
    """

    tagline = "Two photos in, depth out. They never leave this computer."
    titles = ("Left photo", "Right photo")
    button = "Compute depth"
    examples: tuple[str, ...] = tuple(list_examples())
    compute_pair = staticmethod(compute)
    make_view = ResultView

    def __init__(self, predictor: Predictor, model: str, sessions: Sessions, worker: Worker, limits: Limits) -> None:
        self._predictor = predictor
        self._model = model
        self._sessions = sessions
        self._worker = worker
        self._limits = limits
        self._session = sessions.new()
        self._job: Job[Result] | None = None
        self._left = False
        self._zones: dict[str, DropZone] = {}

    def build(self) -> None:
        """Lay the page out for the client that opened it."""
        ui.context.client.on_delete(self._leave)
        ui.colors(primary="#ff7a59")
        with ui.column().classes("page"):
            self._build_header()
            self._build_inputs()
            self._build_status()
            self._result_view = self.make_view()
        self._refresh()

    def _build_header(self) -> None:
        with ui.row().classes("page-header"), ui.column().classes("gap-0"):
            ui.html("<h1>Match<span>Attention</span></h1>", sanitize=False)
            ui.label(self.tagline).classes("muted")
        self._device_note = f"{self._model} on {self._predictor.device.type}"

    def _build_inputs(self) -> None:
        with ui.element("section").classes("card"):
            with ui.element("div").classes("pair"):
                hint = f"drop or choose, up to {self._limits.megabytes:g} MB and {self._limits.megapixels:g} megapixels"
                for side, title in zip(PHOTOS, self.titles):
                    self._zones[side] = self._zone(side, title, hint, PHOTO_SUFFIXES, "image")
            with ui.row().classes("options"):
                self._zones[CAMERA] = self._zone(
                    CAMERA, "Camera file", "optional, for metres", CAMERA_SUFFIXES, "straighten", compact=True
                )
                self._forget_camera = ui.button(icon="close", on_click=self._drop_camera).props(
                    'flat round dense aria-label="Remove the camera file"'
                )
                self._swap = ui.button("Swap", icon="swap_horiz", on_click=self._exchange).props("flat no-caps")
                self._check = ui.checkbox("Check the pair first", value=True)
                with self._check:
                    ui.tooltip("Refuses swapped and unrectified views, with what was measured")
            with ui.row().classes("actions"):
                self._compute = ui.button(self.button, icon="blur_on", on_click=self._run).props(
                    "unelevated no-caps size=md"
                )
                if self.examples:
                    ui.label("or try an example:").classes("muted")
                self._examples = [ui.button(name, on_click=partial(self._run_example, name)) for name in self.examples]
                for button in self._examples:
                    button.props("outline no-caps padding='4px 14px'")

    def _zone(
        self, slot: str, title: str, hint: str, suffixes: tuple[str, ...], icon: str, *, compact: bool = False
    ) -> DropZone:
        zone = DropZone(title, hint, upload_address(self._session, slot), suffixes, icon, compact=compact)
        zone.on("received", self._arrived)
        zone.on("refused", lambda event: self._say(str(event.args)))
        return zone

    def _build_status(self) -> None:
        with ui.element("section").classes("card status") as self._status:
            with ui.row().classes("status-head"):
                self._stage = ui.label()
                self._cancel = ui.button("Cancel", icon="close", on_click=self._stop).props("flat dense no-caps")
            self._bar = ui.linear_progress(0, show_value=False).props("rounded size=6px instant-feedback")
        with ui.element("section").classes("card message").props('role="alert"') as self._message:
            ui.icon("error_outline")
            self._words = ui.label()
        self._status.set_visibility(False)
        self._message.set_visibility(False)
        self._clock = ui.timer(_REFRESH_SECONDS, self._tick, active=False)

    def _arrived(self, _: events.GenericEventArguments) -> None:
        self._message.set_visibility(False)
        self._refresh()

    def _refresh(self) -> None:
        """Show what the session holds, and allow what can be done with it."""
        for side in PHOTOS:
            photo = self._session.photos.get(side)
            caption = "" if photo is None else f"{photo.name}, {photo.width}x{photo.height}"
            self._zones[side].show(caption, "" if photo is None else photo.preview)
        camera, name = self._session.camera, self._session.camera_name
        words = "" if camera is None else f"{name}: f {camera.fx:.0f} px, baseline {camera.baseline * 100:.3g} cm"
        self._zones[CAMERA].show(words)
        self._forget_camera.set_visibility(camera is not None)
        idle = self._job is None
        self._compute.set_enabled(idle and len(self._session.photos) == 2)
        self._swap.set_enabled(idle and len(self._session.photos) > 0)
        for button in self._examples:
            button.set_enabled(idle)

    def _drop_camera(self) -> None:
        self._session.camera = self._session.camera_name = None
        self._refresh()

    def _exchange(self) -> None:
        self._session.swap()
        self._message.set_visibility(False)
        self._refresh()

    async def _run_example(self, name: str) -> None:
        files = example(name, self._predictor.task)
        for side, path in zip(PHOTOS, (files.left, files.right)):
            shown = f"{name} {path.name}"
            replaced = self._session.put(side, await asyncio.to_thread(open_photo, path, shown, self._limits))
            if replaced is not None:
                self._worker.afterwards(partial(replaced.unlink, missing_ok=True))
        if files.camera is not None:
            self._session.camera = StereoCamera.from_file(files.camera)
            self._session.camera_name = files.camera.name
        await self._run()

    async def _run(self) -> None:
        """Compute the pair beside the page, and show what comes of it."""
        session = self._session
        if self._job is not None or len(session.photos) < 2:
            return
        folder = session.new_folder()
        left, right = (session.photos[side].path for side in PHOTOS)
        check = bool(self._check.value)
        task = partial(self.compute_pair, self._predictor, left, right, session.camera, folder, check=check)
        self._job = job = self._worker.start(task)
        self._message.set_visibility(False)
        self._result_view.hide()
        self._show_progress(True)
        self._refresh()
        words = ""
        result: Result | None = None
        try:
            result = await asyncio.wrap_future(job.future)
        except (asyncio.CancelledError, Cancelled):  # while it waited in the queue, or worked
            pass
        except Exception as error:
            words = self._in_words(error)
        self._job = None
        if self._left:
            return
        self._show_progress(False)
        self._refresh()
        if words:
            self._say(words)
        if result is None:
            self._worker.afterwards(partial(shutil.rmtree, folder, ignore_errors=True))
            return
        earlier, session.result = session.result, result
        if earlier is not None:
            self._worker.afterwards(partial(shutil.rmtree, earlier.folder, ignore_errors=True))
        self._result_view.show(result, result_address(session), self._device_note)

    def _stop(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._cancel.set_enabled(False)

    def _in_words(self, error: Exception) -> str:
        if isinstance(error, InputError):
            words = str(error)
            for photo in self._session.photos.values():
                words = words.replace(str(photo.path), photo.name)
            return words
        if isinstance(error, OSError):
            return f"The result could not be written: {error.strerror or error}."
        logger.error("prediction failed", exc_info=error)
        return f"Something went wrong here ({type(error).__name__}). The terminal that runs the page has the details."

    def _show_progress(self, on: bool) -> None:
        self._status.set_visibility(on)
        self._clock.active = on
        self._cancel.set_enabled(on)
        self._tick()

    def _tick(self) -> None:
        if self._job is not None:
            self._stage.set_text(self._job.progress.stage + " …")
            self._bar.set_value(self._job.progress.fraction)

    def _say(self, sentence: str) -> None:
        self._words.set_text(sentence)
        self._message.set_visibility(True)

    def _leave(self) -> None:
        """The page is closed: forget its session, and delete its files once nothing works on them."""
        self._left = True
        self._sessions.close(self._session)
        if self._job is not None:
            self._job.cancel()
        self._worker.afterwards(self._session.remove)


def style_sheet() -> Path:
    """The page's looks."""
    return Path(__file__).with_name("style.css")
