"""The commands of docs/recipes.md do what the page says."""

import asyncio
import json
import os
import re
import subprocess
import uuid

import httpx

from tests.telephony_site import ROOT, Answer, Site, answering, site

__all__ = ["site"]  # a fixture


def blocks(language: str) -> list[str]:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["bash", "-c", command], env=known, capture_output=True, text=True, timeout=60, check=False)


async def test_the_pages_curl_tries_again_and_says_by_its_exit_code_what_became_of_it(site: Site) -> None:
    (command,) = [block for block in blocks("sh") if "curl" in block]
    came: list[bytes] = []

    def pass_on_at_the_second_try(method: str, path: str, headers: dict[str, str], sent: bytes) -> Answer:
        came.append(sent)
        if len(came) == 1:
            return 503, {"Retry-After": "1"}, b"{}"
        kept = {name: value for name, value in headers.items() if name in ("Authorization", "Content-Type")}
        answer = httpx.post(site.base_url + path, content=sent, headers=kept, timeout=60)
        return answer.status_code, {}, answer.content

    with answering(pass_on_at_the_second_try) as url:
        done = await asyncio.to_thread(shell, command, BASE_URL=url, KEY=site.key)
        refused = await asyncio.to_thread(shell, command, BASE_URL=url, KEY="sb_unknown")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1].removeprefix("{}"))["status"] == "transcribing"
    assert len(came) == 3
    assert refused.returncode == 22


def test_the_pages_ways_to_make_an_id_agree() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    expected = str(uuid.uuid5(uuid.NAMESPACE_URL, "asterisk://pbx1/1795167000.42"))
    assert expected in page
    (python,) = [line for line in page.splitlines() if line.startswith("python3 -c")]
    assert shell(python).stdout.strip() == expected
