#!/usr/bin/env python3
"""Vectors of all-MiniLM-L6-v2 by sentence-transformers, for crates/llm/tests/models/folders.rs.

  minilm-goldens.py FOLDER > crates/llm/tests/data/minilm.json

FOLDER is the model, as `scripts/fetch-models.sh` fetches it. Needs the PyPI package sentence-transformers.
"""

import json
import sys

from sentence_transformers import SentenceTransformer

TEXTS = [
    "A man is eating food.",
    "Café déjà vu, naïve Ångström: don't!",
    "日本語のテキスト and [SEP] in between",
    "URL: https://example.com/a?b=c#d costs $5.00 (approx.)",
    "the whale " * 150,
]
rows = SentenceTransformer(sys.argv[1], device="cpu").encode(TEXTS)
print(json.dumps({"texts": TEXTS, "rows": [[float(f"{x:.5g}") for x in row] for row in rows.tolist()]}))
