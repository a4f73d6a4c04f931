"""How commands read what is JSON on their line."""

import json
from typing import Any


def json_object(name: str, text: str) -> dict[str, Any]:
    """The object that an argument holds as JSON.

    Raises:
        ValueError: it holds none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is {text!r}, which is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {text!r}; it must be a JSON object, as '{{\"key\": 1}}'")
    return value
