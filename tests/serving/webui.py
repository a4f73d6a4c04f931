"""Open WebUI, unmodified, in a browser: its page asks the proxy.

It is installed beside the other clients (`clients.py`), in five minutes and 2 GB:

    python -m venv FOLDER/webui && FOLDER/webui/bin/pip install open-webui
"""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
from clients import FOLDER, QUESTION, SECONDS, skip

from e1_trl.ports import free_port

# Without accounts, other providers, documents and the network.
WEBUI = {"WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1"}
WEBUI |= {"ENABLE_OLLAMA_API": "False", "BYPASS_EMBEDDING_AND_RETRIEVAL": "true", "OPENAI_API_KEY": "none"}


def try_open_webui(url: str, folder: Path) -> None:
    """Ask in the page of Open WebUI, in a browser."""
    program = FOLDER / "webui" / "bin" / "open-webui"
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not program.exists() or browser is None:
        skip("open-webui or a browser")
    from playwright.sync_api import expect, sync_playwright

    port = free_port()
    page_url = f"http://127.0.0.1:{port}"
    own = {**os.environ, **WEBUI, "DATA_DIR": str(folder), "OPENAI_API_BASE_URL": url}
    own.pop("PYTHONPATH", None)
    line = [program, "serve", "--host", "127.0.0.1", "--port", str(port)]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(line, env=own, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(SECONDS):
            with suppress(httpx.TransportError):
                if httpx.get(f"{page_url}/health").status_code == 200:
                    break
            time.sleep(1)
        with sync_playwright() as driver:
            page = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
            page.goto(page_url)
            page.get_by_role("button", name="Okay, Let's Go!").click()
            page.locator("#chat-input").click()
            page.keyboard.type(QUESTION)
            page.keyboard.press("Enter")
            answer = page.locator("#messages-container")
            expect(answer).to_contain_text("Thought for", timeout=1000 * SECONDS)
            expect(answer).to_contain_text("boxed", timeout=1000 * SECONDS)
    finally:
        process.kill()
        process.wait()
