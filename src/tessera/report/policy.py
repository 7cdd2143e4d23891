"""What a page may do: run the scripts it was written with, and nothing else; fetch nothing."""

from __future__ import annotations

import base64
import hashlib


def content_policy(*scripts: str) -> str:
    """The content security policy of a page with these scripts.

    >>> content_policy()
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'"
    """
    rules = ["default-src 'none'", "img-src data: blob:", "style-src 'unsafe-inline'"]
    if scripts:
        digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
        rules.append(" ".join(["script-src", *(f"'sha256-{digest}'" for digest in digests)]))
    return "; ".join(rules)
