"""A gateway in front of a server that ends requests which take long."""

from typing import Any

import pytest
from server_stub import TOKEN, ServerStub

from e1_trl.budget import ThinkingClose
from e1_trl.engines.engine import EngineError, SamplingSettings
from e1_trl.engines.server import ServerEngine
from e1_trl.marker import Marker
from e1_trl.rollout import Request

CLOSE = ThinkingClose(Marker("</think>", (9,), (9,), 1), 100)
REQUESTS = [(at, Request([at], 1, stop_at_marker=False)) for at in range(3)]
TOLD = "resampled: shorter answers replace long ones; raise its gateway's time limit"


@pytest.mark.parametrize(("fault", "is_told"), [(408, True), (504, True), (None, True), (503, False)])
def test_answers_that_may_have_been_cut_for_their_length_are_told_once(
    fault: int | None, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def respond(body: dict[str, Any]) -> Any:
        if len(stub.bodies) <= 2 and fault is None:
            raise ConnectionError  # which breaks the connection
        return TOKEN if len(stub.bodies) > 2 else fault

    stub = ServerStub(respond)
    answered: list[int] = []
    ServerEngine(stub.url, "m", CLOSE, SamplingSettings()).serve(REQUESTS, lambda key, _: answered.append(key) or [])
    assert sorted(answered) == [0, 1, 2] and len(stub.bodies) == 5
    assert sum(TOLD in text for text in caplog.messages) == is_told


def test_a_server_that_is_gone_has_cut_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    stub = ServerStub()
    engine = ServerEngine(stub.url, "m", CLOSE, SamplingSettings(), is_trained=True)  # which is not waited for as long
    stub.shutdown()
    stub.server_close()
    with pytest.raises(EngineError, match="Cannot connect to host"):
        engine.serve(REQUESTS, lambda *_: [])
    assert TOLD not in caplog.text
