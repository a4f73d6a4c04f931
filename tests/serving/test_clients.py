"""Real clients, unmodified, and the bodies of others, before the proxy and a real vLLM server of the nano model."""

from collections.abc import Callable, Iterator
from pathlib import Path

import clients
import httpx
import openai
import pytest
import webui
from proxies import conversation, proxy_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(server: openai.OpenAI) -> Iterator[str]:
    with proxy_of(server.base_url, drop=["tools"]) as url:
        yield url


@pytest.mark.parametrize("module", clients.CLIENTS)
def test_a_client_works_unmodified(module: str, url: str, tmp_path: Path) -> None:
    line = [clients.find_python(module), "-c", clients.CLIENTS[module], url, clients.QUESTION]
    clients.run(line, tmp_path)


OTHERS = [clients.try_ai_sdk, clients.try_lm_eval, clients.try_guidellm, webui.try_open_webui]


@pytest.mark.parametrize("attempt", OTHERS)
def test_another_client_works_unmodified(attempt: Callable[[str, Path], None], url: str, tmp_path: Path) -> None:
    attempt(url, tmp_path)


@pytest.mark.parametrize("name", clients.BODIES)
def test_the_body_of_a_client_is_answered(name: str, url: str) -> None:
    body = {"model": "nano", "messages": conversation(clients.QUESTION), **clients.BODIES[name]}
    answer = httpx.post(f"{url}/chat/completions", json=body, timeout=clients.SECONDS)
    assert answer.status_code == 200 and '"thinking_end"' in answer.text and '"error"' not in answer.text, answer.text
