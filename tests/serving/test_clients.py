"""Real clients, unmodified, and the bodies of others, before the proxy and a real vLLM server of the nano model."""

import os
from collections.abc import Iterator
from pathlib import Path

import clients
import openai
import pytest
import webui
from proxies import proxy_of

FOLDER = Path(os.environ["E1_CLIENTS"]) if "E1_CLIENTS" in os.environ else None
pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(server: openai.OpenAI) -> Iterator[str]:
    with proxy_of(server.base_url, drop=["tools"]) as url:
        yield url


@pytest.mark.parametrize("client", clients.CLIENTS, ids=lambda client: client.name)
def test_a_client_works_unmodified(client: clients.Client, url: str) -> None:
    try:
        clients.try_client(client, url, FOLDER)
    except clients.MissingError as error:
        pytest.skip(f"{error}: see tests/serving/clients.py")


@pytest.mark.parametrize("attempt", [clients.try_lm_eval, clients.try_guidellm, webui.try_open_webui])
def test_a_harness_works_unmodified(attempt: object, url: str) -> None:
    try:
        attempt(url, FOLDER)  # type: ignore[operator]
    except clients.MissingError as error:
        pytest.skip(f"{error}: see tests/serving/clients.py")


@pytest.mark.parametrize("name", clients.BODIES)
def test_the_body_of_a_client_is_answered(name: str, url: str) -> None:
    clients.try_body(name, url)
