#!/usr/bin/env python3
"""Downloads a package's source archive as it is: fetch-sdist.py NAME VERSION SHA256 FILE

`pip download` does as much, but first installs what the package is built with, to ask it for the package's
dependencies. This looks where pip is set to look (index-url, extra-index-url, find-links, no-index, cert; proxies by the
environment), and knows nothing of passwords. FILE is written only with bytes of that SHA256; else the status is 1, and
lines on standard error say of each place why it was not there.
"""

import ast
import hashlib
import html.parser
import http.client
import re
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

TIMEOUT = 60  # seconds without an answer


def pip_settings() -> dict[str, str]:
    """pip's settings for downloads: what is set for the command goes before what is set for all, the environment first."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    settings = {}
    for section in ("global.", "download.", ":env:."):
        for key, _, value in (line.partition("=") for line in lines):
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def places(name: str, settings: dict[str, str]) -> list[str]:
    """Folders, pages of links and archives that pip would look at."""
    found = settings.get("find-links", "").split()
    if settings.get("no-index", "").lower() not in ("1", "true", "yes", "on"):
        indices = [settings.get("index-url", "https://pypi.org/simple"), *settings.get("extra-index-url", "").split()]
        found += [f"{index.rstrip('/')}/{name}/" for index in indices]
    return [Path(place).resolve().as_uri() if "://" not in place else place for place in found]


class Links(html.parser.HTMLParser):
    """The addresses that a page links to."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found += [value for key, value in attributes if tag == "a" and key == "href" and value]


def main(name: str, version: str, sha256: str, file: str) -> str | None:
    settings = pip_settings()
    context = ssl.create_default_context(cafile=settings.get("cert"))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def read(address: str) -> bytes:
        request = urllib.request.Request(address, headers={"Accept": "text/html, */*;q=0.1"})
        with opener.open(request, timeout=TIMEOUT) as answer:
            return answer.read()

    def is_archive(address: str) -> bool:
        last = unquote(urlsplit(address).path).rpartition("/")[2].lower()
        return re.sub(r"[-_.]+", "-", last) == re.sub(r"[-_.]+", "-", f"{name}-{version}.tar.gz".lower())

    def archives(place: str) -> list[str]:
        folder = Path(unquote(urlsplit(place).path))
        if place.startswith("file:") and folder.is_dir():
            links = [path.as_uri() for path in folder.iterdir()]
        else:
            links = [place] if is_archive(place) else Links(read(place).decode()).found
        return [urldefrag(urljoin(place, link)).url for link in links if is_archive(link)]

    troubles = []
    for place in places(name, settings):
        trouble = f"no {name}-{version}.tar.gz there"
        try:
            for address in archives(place):
                archive = read(address)
                if hashlib.sha256(archive).hexdigest() == sha256:
                    Path(file).write_bytes(archive)
                    return None
                trouble = f"{address} is another file: its SHA256 is not {sha256}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            trouble = str(error) or type(error).__name__
        troubles.append(f"{place}: {trouble}")
    return "\n".join(troubles or ["pip is set to look nowhere: no-index without find-links"])


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
