"""The launches of a step as one CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from succinct_gpu import simt
from succinct_gpu._device import stream_pointer

if TYPE_CHECKING:
    from succinct_gpu._filter_step import DeviceStep, Prepared


class Captured:
    """A step whose launches are started all at once; made by `succinct_gpu.capture_step`.

    It reads its arguments where they lay when it was captured, and writes to `step` again. The
    executor has no graphs: it starts one kernel after another.

    Attributes
    ----------
    step : named tuple
        Arrays of the device with the answer, as from `succinct_gpu.filter_step`.
    """

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self.step: DeviceStep = prepared.step
        self._graph: Any = None
        prepared.launch()  # compiles and loads what a capture cannot
        if simt.enabled():
            return
        from cuda.bindings import driver
        from numba import cuda

        stream = prepared.stream or cuda.stream()
        prepared.stream = stream
        stream.synchronize()
        handle = driver.CUstream(stream_pointer(stream))
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _checked(driver.cuStreamBeginCapture(handle, mode))
        try:
            prepared.launch()
        finally:
            graph = _checked(driver.cuStreamEndCapture(handle))
        self._graph = _checked(driver.cuGraphInstantiate(graph, 0))
        _checked(driver.cuGraphDestroy(graph))

    def launch(self, stream: Any = None) -> None:
        """Start the step, by default on the stream that it was captured on."""
        if self._graph is None:
            self._prepared.launch()
            return
        from cuda.bindings import driver

        used = stream or self._prepared.stream
        _checked(driver.cuGraphLaunch(self._graph, driver.CUstream(stream_pointer(used))))

    def __del__(self) -> None:
        if getattr(self, "_graph", None) is not None:
            from cuda.bindings import driver

            driver.cuGraphExecDestroy(self._graph)


def _checked(answer: tuple[Any, ...]) -> Any:
    """What a call of the driver gave besides its status.

    Raises
    ------
    RuntimeError
        If the status is not success.
    """
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(
            f"CUDA graph: the driver says {status!r}; succinct_gpu.filter_step does the same "
            "without a graph"
        )
    return values[0] if values else None
