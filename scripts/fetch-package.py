#!/usr/bin/env python3
"""Downloads a package's archive as it is: fetch-package.py NAME ARCHIVE SHA256 FILE

`pip download` does as much, but for a source archive it first installs what the package is built with. This looks
where pip is set to look (index-url, extra-index-url, find-links, no-index, cert; proxies by the environment), and knows
nothing of passwords. A download that breaks off is tried again, and goes on where it ended. So does the next run, from
FILE.part. FILE is written only with bytes of that SHA256. Otherwise the status is 1, and lines on standard error give
the reason for each place.
"""

import ast
import hashlib
import html.parser
import http.client
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

TIMEOUT = 60  # seconds without an answer
TRIES = 3
PIECE = 1 << 20  # bytes read at once


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


class Place:
    """Reads addresses as pip's settings say."""

    def __init__(self, settings: dict[str, str]):
        context = ssl.create_default_context(cafile=settings.get("cert"))
        self.opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def open(self, address: str, **headers: str):
        return self.opener.open(urllib.request.Request(address, headers=headers), timeout=TIMEOUT)

    def page(self, address: str) -> str:
        with self.open(address, Accept="text/html, */*;q=0.1") as answer:
            return answer.read().decode()

    def append(self, address: str, part: Path):
        """Reads what `part` lacks of an archive."""
        have = part.stat().st_size if part.exists() else 0
        with self.open(address, **({"Range": f"bytes={have}-"} if have else {})) as answer:
            have = have if answer.status == 206 else 0
            length = answer.headers.get("Content-Length")
            with part.open("ab" if have else "wb") as file:
                while piece := answer.read(PIECE):
                    file.write(piece)
        size = part.stat().st_size
        if length and size < have + int(length):
            raise OSError(f"{address} broke off after {size} of {have + int(length)} bytes")

    def download(self, address: str, part: Path):
        """Reads an archive into `part`, with a pause before each further try."""
        for tried in range(1, TRIES + 1):
            try:
                return self.append(address, part)
            except urllib.error.HTTPError as error:
                if error.code == 416:  # `part` is not a beginning of this archive
                    part.unlink(missing_ok=True)
                elif error.code < 500 or tried == TRIES:
                    raise
            except (OSError, http.client.HTTPException):
                if tried == TRIES:
                    raise
            time.sleep(tried)
        return self.append(address, part)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(name: str, archive: str, sha256: str, file: str) -> str | None:
    settings = pip_settings()
    reader = Place(settings)
    part = Path(file + ".part")
    plain = lambda text: re.sub(r"[-_.]+", "-", text.lower())

    def is_archive(address: str) -> bool:
        return plain(unquote(urlsplit(address).path).rpartition("/")[2]) == plain(archive)

    def archives(place: str) -> list[str]:
        folder = Path(unquote(urlsplit(place).path))
        if place.startswith("file:") and folder.is_dir():
            links = [path.as_uri() for path in folder.iterdir()]
        else:
            links = [place] if is_archive(place) else Links(reader.page(place)).found
        return [urldefrag(urljoin(place, link)).url for link in links if is_archive(link)]

    def fetch(address: str) -> str | None:
        """What is wrong with the archive there. What an earlier run began may be of another one."""
        begun = part.exists()
        reader.download(address, part)
        found = sha256_of(part)
        if found == sha256:
            part.replace(file)
            return None
        part.unlink()
        return fetch(address) if begun else f"{address} is another file: its SHA256 is {found}, not {sha256}"

    troubles = []
    for place in places(name, settings):
        trouble = f"no {archive} there"
        try:
            for address in archives(place):
                trouble = fetch(address)
                if trouble is None:
                    return None
        except (OSError, ValueError, http.client.HTTPException) as error:
            trouble = str(error) or type(error).__name__
        troubles.append(f"{place}: {trouble}")
    return "\n".join(troubles or ["pip is set to look nowhere: no-index without find-links"])


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
