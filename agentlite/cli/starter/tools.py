"""The functions of tools.json, for `agentlite chat sft --tools tools.json --exec tools.py`."""

import random


def set_light(room: str, on: bool) -> dict[str, bool]:
    return {"ok": True}


def set_heating(room: str, degrees: int) -> dict[str, bool | str]:
    if not 5 <= degrees <= 30:
        return {"ok": False, "why": "from 5 to 30 degrees"}
    return {"ok": True}


def add_to_list(item: str, amount: int = 1) -> dict[str, int]:
    return {"added": amount}


def play_music(artist: str, room: str = "") -> dict[str, str]:
    return {"playing": artist}


def get_weather(city: str) -> dict[str, int]:
    """Not a real one: it depends on the name alone."""
    weather = random.Random(city)
    return {"degrees": weather.randint(-5, 30), "rain_mm": weather.choice([0, 0, 1, 4])}
