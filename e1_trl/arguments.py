"""How commands read what is JSON on their line."""

import json
from typing import Any

from e1_trl.errors import UserError


def json_object(name: str, text: str) -> dict[str, Any]:
    """The object that an argument holds as JSON.

    Raises:
        UserError: it holds none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"{name} is {text!r}, which is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise UserError(f"{name} is {text!r}; it must be a JSON object, as '{{\"key\": 1}}'")
    return value
